"""What the contracts say is legal works on target c; what they say is not is refused in place."""

from __future__ import annotations

import re

import pytest

import tilec.language as T
from tilec import ir, ops
from tilec.testing.conformance.checks import program
from tilec.testing.conformance.run import Subject, subject
from tilec.testing.contracts import Case, Contract, all_cases, differences, refusal, sample
from tilec.testing.contracts_scalars import FUNCTIONS, OPERATORS, SCALARS
from tilec.testing.contracts_tiles import TILES

pytest.importorskip("tilec_c")

CONTRACTS = (*TILES, *SCALARS)
TOO_MANY = 6000
"""Tables with more combinations are sampled, generously, in the slow run too."""


@pytest.fixture(scope="module")
def given() -> Subject:
    return subject("c")


def verify(cases: list[Case], given: Subject) -> None:
    wrong = [text for case in cases if not case.legal and (text := refusal(case, given))]
    wrong += differences([case for case in cases if case.legal], given)
    assert not wrong, f"{len(wrong)} of {len(cases)}\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.name)
def test_sample(contract: Contract, given: Subject) -> None:
    verify(sample(contract, legal=14, illegal=4), given)


@pytest.mark.slow
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.name)
def test_all(contract: Contract, given: Subject) -> None:
    if contract.size() <= TOO_MANY:
        verify(list(all_cases(contract)), given)
    else:
        verify(sample(contract, legal=400, illegal=150, seed=1), given)


@pytest.mark.parametrize("contract", [OPERATORS, FUNCTIONS], ids=lambda c: c.name)
def test_result_has_the_dtype_that_the_table_says(contract: Contract) -> None:
    """The store converts nothing: the checks declare the result's dtype themselves."""
    for case in sample(contract, legal=150, illegal=0):
        if case.values[0] not in ("cast", "Cast"):
            func = T.from_script(program([case.check()]))
            [store] = [node for node in ir.walk(func.body) if isinstance(node, ir.Store)]
            assert not isinstance(store.value, ir.Cast), str(case)


def test_every_rule_and_every_value_is_sampled() -> None:
    for contract in CONTRACTS:
        cases = sample(contract, legal=14, illegal=4)
        for rule in contract.rules:
            assert any(case.broken == (rule,) for case in cases), (contract.name, rule.why)
        assert sum(case.legal for case in cases) == 14


NO_OPERATION = {
    "region", "emit_tile_op",  # what operations are made of
    "let", "evaluate", "grid", "align_up",  # other names for `=`, for nothing, and for what is here
    "alloc_barrier", "alloc_buffer", "alloc_var", "alloc",  # scopes of their own
}  # fmt: skip


def test_every_operation_has_a_contract() -> None:
    """Whoever adds an operation adds its table."""
    from tilec.language import alloc, loops, scalar, tile

    names = {
        name
        for module in (tile, scalar, loops, alloc)
        for name, item in vars(module).items()
        if callable(item) and not name.startswith("_") and not isinstance(item, type)
        and (item.__name__, item.__module__) == (name, module.__name__)
    }  # fmt: skip
    assert {"copy", "gemm", "exp", "atomic_add", "serial", "alloc_shared"} <= names
    texts = "\n".join(
        program([case.check()])
        for contract in CONTRACTS
        for case in sample(contract, legal=90, illegal=0)
    )
    missing = {n for n in names - NO_OPERATION if not re.search(rf"\bT\.{n}\(", texts)}
    assert missing == set()
    operations = {
        cls.script_name or cls.__name__ for cls in _subclasses(ops.TileOp) if _is_ours(cls)
    }
    assert {name for name in operations if f"T.{name}" not in texts} == set()


def _subclasses(cls: type) -> set[type]:
    below = set(cls.__subclasses__())
    return below.union(*(_subclasses(c) for c in below))


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("tilec.ops")


def test_a_sample_is_the_same_every_time() -> None:
    first, again = (sample(TILES[0], 5, 2, seed=3) for _ in range(2))
    assert [str(c) for c in first] == [str(c) for c in again]


def test_a_wrong_table_is_noticed(given: Subject) -> None:
    """The verifier does not just say yes."""
    [contract] = [c for c in TILES if c.name == "copy of operands"]
    illegal = next(c for c in all_cases(contract) if not c.legal)
    legal = next(c for c in all_cases(contract) if c.legal)
    assert "accepted" in str(refusal(legal._replace(broken=contract.rules), given))
    assert "legal, but refused" in differences([illegal._replace(broken=())], given)[0]
    other = contract.rules[0]._replace(error=ZeroDivisionError)  # type: ignore[arg-type]
    assert "ZeroDivisionError expected" in str(refusal(illegal._replace(broken=(other,)), given))
