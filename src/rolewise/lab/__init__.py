"""A controlled lab: a small model trained from nothing in minutes, on tasks far above its capability floor.

Four arms, headers of words or of reserved tokens, each without and with the segment table, are trained on the same
rows and attacked in the same ways. What the method does can so be seen apart from what a model knows.
"""

from rolewise.lab.config import ARMS, AXES, LENGTHS, MIXES, LabConfig, configs_of
from rolewise.lab.results import LabResult, ResultFile

__all__ = ["ARMS", "AXES", "LENGTHS", "MIXES", "LabConfig", "LabResult", "ResultFile", "configs_of"]
