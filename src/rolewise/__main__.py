"""`python -m rolewise`, for `torchrun -m rolewise train ...`."""

from rolewise.cli import main

raise SystemExit(main())
