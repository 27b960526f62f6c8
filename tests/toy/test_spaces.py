"""Spaces are counted exactly, and every number names another member."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rela.toy.spaces import Items, Product, Space, Union, each

SPACES = st.recursive(
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(
        lambda items: Items([("item", i) for i in items])
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda spaces: Product(lambda *members: ("product", *members), *spaces)
    ),
    max_leaves=6,
)


@given(space=SPACES, seed=st.integers(0, 99))
def test_every_number_names_a_member_and_a_draw_is_one_of_them(space: Space, seed: int):
    members = [space[index] for index in range(space.size)]
    assert len(set(members)) == space.size
    assert space.sample(Random(seed)) in members


@given(first=SPACES, second=SPACES)
def test_a_union_lists_one_after_the_other(first: Space, second: Space):
    marked = [Product(lambda x, mark=mark: (mark, x), space) for mark, space in enumerate((first, second))]
    union = Union(marked, [1, 3])
    assert union.size == first.size + second.size
    assert [union[i] for i in range(union.size)] == [space[i] for space in marked for i in range(space.size)]


def test_sizes_multiply_however_large():
    digits = Items(range(10))
    assert Product(lambda *ds: ds, *[digits] * 30).size == 10**30
    assert Product(lambda *ds: ds, *[digits] * 30)[10**30 - 1] == (9,) * 30


def test_weights_say_how_often_and_empty_spaces_are_left_out():
    union = Union([Items("a"), Items(""), Items("b")], [1, 5, 3])
    assert (union.size, union[0], union[1]) == (2, "a", "b")
    random = Random(0)
    share = sum(union.sample(random) == "b" for _ in range(4000)) / 4000
    assert share == pytest.approx(0.75, abs=0.035)  # five standard errors
    assert each("xy", lambda item: Items([item, item * 2])).size == 4
