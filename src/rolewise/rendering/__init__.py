"""Messages to tokens with roles: the security boundary (see `encoding.render`)."""

from rolewise.rendering.encoding import Encoding as Encoding
from rolewise.rendering.encoding import control_token_ids as control_token_ids
from rolewise.rendering.encoding import data_layout as data_layout
from rolewise.rendering.encoding import encode as encode
from rolewise.rendering.encoding import render as render
from rolewise.rendering.templates import PreparedTokenizer as PreparedTokenizer
from rolewise.rendering.templates import prepare_tokenizer as prepare_tokenizer
