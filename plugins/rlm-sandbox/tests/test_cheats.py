"""Programs without an answer pass no test, however it compares; they never receive an expected value."""

from __future__ import annotations

import pytest
from rlm_sandbox import Call, Check, Limits, Local, Program
from rlm_sandbox.cheats import CHEATS, CONSTANTS, EXCEPTIONS, EXITS, OBJECTS

STYLES = {
    "equal": "assert f(2, 3) == 5",
    "equal_reflected": "assert 5 == f(2, 3)",
    "not_unequal": "assert not f(2, 3) != 5",
    "near": "assert abs(f(2, 3) - 5) < 1e-6",
    "near_reflected": "assert abs(5 - f(2, 3)) < 1e-6",
    "between": "assert 5 <= f(2, 3) <= 5",
    "quotient": "assert f(2, 3) / 5 == 1",
    "remainder": "assert f(2, 3) ^ 5 == 0",
    "isclose": "assert math.isclose(f(2, 3), 5)",
    "approx": "assert f(2, 3) == pytest.approx(5)",
    "approx_reflected": "assert pytest.approx(5) == f(2, 3)",
    "rounded": "assert round(f(2, 3), 2) == 5",
    "converted": "assert int(f(2, 3)) == 5",
    "float_converted": "assert float(f(2, 3)) == 5.0",
    "member": "assert f(2, 3) in (5, 6)",
    "member_of_set": "assert f(2, 3) in {5}",
    "contains": "assert 'b' in f(['a'], ['b'])",
    "contains_all": "assert all(x in f(['a'], ['b']) for x in 'ab') and len(f([5, 6], [7])) == 3",
    "superset": "assert {'a', 'b'} <= set(f(['a'], ['b']))",
    "sorted": "assert sorted(f([2], [1])) == [1, 2]",
    "item": "assert f([5], [6])[1] == 6",
    "length": "assert len(f([5, 6], [7])) == 3",
    "tuple": "assert tuple(f([5], [6])) == (5, 6)",
    "sum": "assert sum([f(2, 3), -5]) == 0",
    "maximum": "assert max(f(2, 3), 4) == 5 and min(f(2, 3), 6) == 5",
    "text": "assert str(f('a', 'b')) == 'ab'",
    "formatted": "assert f'{f(2, 3)}' == '5'",
    "text_method": "assert f('a', 'b').upper() == 'AB'",
    "joined": "assert ''.join(f(['a'], ['b'])) == 'ab'",
    "in_a_list": "assert [f(2, 3)] == [5]",
    "in_a_dict": "assert {'x': f(2, 3)} == {'x': 5}",
    "looked_up": "assert {5: True}[f(2, 3)]",
    "all_of_generator": "assert all(f(a, a) == w for a, w in ((1, 2), (2, 4)))",
    "all_of_map": "assert all(map(lambda a: f(a, a) == 2 * a, (1, 2)))",
    "all_of_star_map": "assert all(itertools.starmap(lambda a, w: f(a, a) == w, ((1, 2), (2, 4))))",
    "zip_of_map": "pairs = list(zip(map(f, (1, 2), (1, 2)), (2, 4)))\nassert all(a == w for a, w in pairs) and pairs",
    "loop_of_map": "for got, want in zip(map(f, (1, 2), (1, 2)), (2, 4)): assert got == want",
    "loop_of_iter": "for got in iter(lambda: f(2, 3), 7):\n    assert got == 5\n    break\nelse: assert False",
    "takewhile": "assert [*itertools.takewhile(lambda n: n < 3, map(f, (1, 2), (1, 2)))] == [2]",
    "any": "assert any(f(a, 1) == 3 for a in (1, 2))",
    "unittest_equal": "unittest.TestCase().assertEqual(f(2, 3), 5)",
    "unittest_near": "unittest.TestCase().assertAlmostEqual(f(2, 3), 5)",
    "unittest_in": "unittest.TestCase().assertIn('b', f(['a'], ['b']))",
    "unittest_count": "unittest.TestCase().assertCountEqual(f([5], [6]), [6, 5])",
    "caught": "try:\n    assert f(2, 3) == 5\nexcept AssertionError:\n    raise\nexcept TypeError:\n    assert False",
    "instance": "assert isinstance(f(2, 3), int) and f(2, 3) == 5",
    "exact": "assert type(f(2, 3)) is int and f(2, 3) == 5",
    "operator": "assert operator.eq(f(2, 3), 5) and operator.sub(f(2, 3), 5) == 0",
    "counter": "assert collections.Counter(f([5], [5])) == {5: 2}",
    "reduced": "assert functools.reduce(lambda a, b: a + b, [f(1, 1), f(1, 2)]) == 5",
}  # fmt: skip
"""Name → test that `add` passes, as ``f``; written as tests of data sets compare."""
STYLE_SETUP = "import collections, functools, itertools, math, operator, pytest, unittest\n"
STYLE_CHECKS = [Check(source, STYLE_SETUP, ("f",)) for source in STYLES.values()]
PATIENT = Limits(seconds=30.0)


def passed(sandbox: Local, source: str, limits: Limits = PATIENT) -> list[str]:
    outputs = list(sandbox.run(Program(source.replace("NAME", "f")), STYLE_CHECKS, limits))
    return [name for name, output in zip(STYLES, outputs, strict=True) if output.status == "ok"]


def test_a_correct_program_passes_every_style(sandbox: Local) -> None:
    assert passed(sandbox, "def NAME(a, b): return a + b") == list(STYLES)


@pytest.mark.parametrize("name", [*OBJECTS, *EXCEPTIONS])
def test_no_object_or_exception_passes_a_test(name: str, sandbox: Local) -> None:
    assert passed(sandbox, CHEATS[name], Limits(seconds=1.0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EXITS, *CONSTANTS])
def test_no_exit_or_constant_passes_a_test(name: str, sandbox: Local) -> None:
    assert passed(sandbox, CHEATS[name], Limits(seconds=1.0)) == []


SPY = """
seen = []
class Spy:
    def __getattr__(self, name): return lambda *operands: seen.append(operands) or 0
for name in "eq ne lt le gt ge contains add radd sub rsub mul rmul truediv xor mod divmod hash".split():
    setattr(Spy, f"__{name}__", lambda self, *operands: seen.append(operands) or 0)
def f(a, b): return Spy()
def everything_seen(): return str(seen)
"""


def test_a_program_receives_no_expected_value(sandbox: Local) -> None:
    checks = [Check(test.replace("5", "987123"), STYLE_SETUP, ("f",)) for test in STYLES.values()]
    outputs = list(sandbox.run(Program(SPY), [*checks, Call("everything_seen")], PATIENT))
    assert "987123" not in outputs[-1].value
    assert [output.status for output in outputs[:-1]] == ["error"] * len(checks)


@pytest.mark.parametrize(
    "check",
    [
        "assert P(1) == P(1)",
        "assert P(2) > P(1)",
        "assert sorted([P(2), P(1)])",
        "assert P(1) in [P(1)]",
        "assert make() - 3 == 0",
    ],
)
def test_programs_do_not_compare_their_own_objects(check: str, sandbox: Local) -> None:
    source = "class P:\n    def __init__(self, x): pass\ndef make(): return P(1)\n"
    for name in ("eq", "lt", "gt", "sub"):
        source += f"P.__{name}__ = lambda a, b: name == 'sub' and 0 or True\n"
    caught = f"try:\n    {check}\nexcept BaseException: pass"
    for tests in (check, caught):
        (output,) = sandbox.run(Program(source), [Check(tests, names=("P", "make"), classes=("P",))], PATIENT)
        assert "Undecidable" in output.error


def test_an_assertion_that_fails_in_a_callback_fails_the_check(sandbox: Local) -> None:
    swallows = Program("def f(visit):\n    try: visit(0)\n    except BaseException: pass\n")
    check = Check("def visit(x): assert x == 1\nf(visit)", names=("f",))
    (output,) = sandbox.run(swallows, [check], PATIENT)
    assert output.status == "error"


def test_all_inputs_together_have_a_limit(sandbox: Local) -> None:
    slow = Program("import time\ndef f(): time.sleep(0.4)\n")
    outputs = list(sandbox.run(slow, [Call("f")] * 30, Limits(seconds=5.0, total=1.0)))
    late = [output.status for output in outputs].index("late")
    assert late < 4
    assert {output.status for output in outputs[late + 1 :]} == {"skipped"}


def test_control_characters_of_errors_are_escaped(sandbox: Local) -> None:
    (output,) = sandbox.run(Program(r"def f(): raise ValueError('\x1b[2J\r\x00é')"), [Call("f")], PATIENT)
    assert output.error == r"ValueError: \x1b[2J\r\x00é"
