"""docs/compatibility.md and docs/layers.md name everything, and claim nothing that is not so."""

import pytest

from scaffe.layers.base.layer import layer_types
from scaffe.proto import caffe_pb2
from tests.scaffe.cli.compatibility import CAFFE_TYPES, DIFFERS, DOCS, FILES, LAYER_NOTES, NAMES, ROOT, page, state

REMEDY = "run python -m tests.scaffe.cli.compatibility and commit docs/"
OPTIONS = [field for field in caffe_pb2.LayerParameter.DESCRIPTOR.fields if field.name.endswith("_param")]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_what_code_and_tests_say(name):
    assert (DOCS / f"{name}.md").read_text() == page(name), REMEDY


@pytest.mark.parametrize("field", OPTIONS, ids=lambda field: field.name)
def test_every_option_is_read_or_explained(field):
    unread = [o.name for o in field.message_type.fields if state(field.name, o.name) == "**not read**"]
    assert not unread, f"{field.name}: read {unread} or say in DIFFERS what they do"


def test_every_solver_field_is_read_or_explained():
    fields = caffe_pb2.SolverParameter.DESCRIPTOR.fields
    assert not [f.name for f in fields if state("solver", f.name) == "**not read**"]


def test_notes_are_about_something():
    known = {f"{field.name}.{o.name}" for field in OPTIONS for o in field.message_type.fields}
    known |= {f"solver.{f.name}" for f in caffe_pb2.SolverParameter.DESCRIPTOR.fields} | {"engine"}
    assert not set(DIFFERS) - known
    assert not set(LAYER_NOTES) - set(layer_types.names())


def test_files_name_tests_that_exist():
    assert not [test for *_, test in FILES if not (ROOT / "tests" / test).exists()]


def test_caffes_layers():
    """All of them are there."""
    assert len(CAFFE_TYPES) == len(set(CAFFE_TYPES))
    assert not set(CAFFE_TYPES) - set(layer_types.names())
