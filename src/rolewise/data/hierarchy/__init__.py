"""The training sets of the Instruction Hierarchy: recipes of sources, stages and a mix.

    from pathlib import Path
    from rolewise.data import write_jsonl
    from rolewise.data.hierarchy import Pipeline, load_recipe

    recipe = load_recipe("recipes/smollm2/instruction-hierarchy/data-hierarchy.yaml")
    with Pipeline(recipe, Path("work"), say=print) as pipeline:
        made = pipeline.make()             # made.rows, made.counts, made.rejects
    write_jsonl(made.rows, "rows.jsonl")

See the ISE paper (section 5, appendix B.2). `rolewise data hierarchy` is this at the command line.
"""

from rolewise.data.hierarchy.pipeline import Made, Pipeline
from rolewise.data.hierarchy.recipe import Recipe, Source, load_recipe, recipe_from_dict
from rolewise.data.hierarchy.stages import KINDS, Stage
from rolewise.data.hierarchy.walk import Count, StageEstimate

__all__ = [
    "KINDS",
    "Count",
    "Made",
    "Pipeline",
    "Recipe",
    "Source",
    "Stage",
    "StageEstimate",
    "load_recipe",
    "recipe_from_dict",
]
