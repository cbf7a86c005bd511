"""Pass configuration keys: names, types, defaults and meanings.

The names are those of the public language surface, so that ``pass_configs={...}`` of an existing
kernel is accepted as it stands. A key without a meaning for the target at hand is a hint and does
nothing; a key that nobody knows is refused. Backends declare further keys in their manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple

from tilec.diagnostics import PassConfigError, did_you_mean

Kind = tuple[type, ...]
_BOOL: Kind = (bool,)
_INT: Kind = (int,)
_FLOAT: Kind = (float, int)
_STR: Kind = (str,)
_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


class ConfigKey(NamedTuple):
    """One key that ``pass_configs`` accepts.

    Attributes:
        name: the string that is used as the key.
        kind: accepted Python types.
        default: value where the key is not given.
        doc: what it does.
    """

    name: str
    kind: Kind
    default: object
    doc: str

    def check(self, value: object) -> object:
        """The value, if its type fits (0 and 1 pass as bools).

        Raises:
            PassConfigError: another type.
        """
        if self.kind == _BOOL and type(value) is int and value in (0, 1):
            return bool(value)
        is_stray_bool = isinstance(value, bool) and bool not in self.kind
        if isinstance(value, self.kind) and not is_stray_bool:
            return value
        wanted = " or ".join("None" if t is NoneType else t.__name__ for t in self.kind)
        raise PassConfigError(
            f"pass config {self.name!r} expects {wanted}, got {type(value).__name__} {value!r}",
            hint=self.doc,
        )


class PassConfigKey(StrEnum):
    """The keys of the public language surface."""

    kind: Kind
    default: object
    doc: str

    def __new__(cls, name: str, kind: Kind, default: object, doc: str) -> PassConfigKey:
        """A member whose string value is the key."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.kind, member.default, member.doc = kind, default, doc
        return member

    # Scheduling and data movement
    TL_DISABLE_WARP_SPECIALIZED = (
        "tl.disable_warp_specialized", _BOOL, False,
        "No automatic split into producers and consumers.",
    )  # fmt: skip
    TL_ENABLE_AUTO_WARP_SPECIALIZATION = (
        "tl.enable_auto_warp_specialization", (str, NoneType), None,
        "Name of an opt-in scheduler.",
    )  # fmt: skip
    TL_ENABLE_AUTO_SCHEDULE = (
        "tl.enable_auto_schedule", _BOOL, True, "Automatic scheduling where a target has it.",
    )  # fmt: skip
    TL_DISABLE_TMA_LOWER = (
        "tl.disable_tma_lower", _BOOL, False, "No bulk copy engine for plain copies.",
    )  # fmt: skip
    TL_ENABLE_ASYNC_COPY = (
        "tl.enable_async_copy", _BOOL, True, "Allow asynchronous copies.",
    )  # fmt: skip
    TIR_USE_ASYNC_COPY = (
        "tirx.use_async_copy", _BOOL, True, "Allow asynchronous copies.",
    )  # fmt: skip
    TL_ENABLE_LOWER_LDGSTG = (
        "tl.enable_lower_ldgstg", _BOOL, False, "Explicit global load and store instructions.",
    )  # fmt: skip
    TL_ENABLE_LOWER_LDGSTG_PREDICATED = (
        "tl.enable_lower_ldgstg_predicated", _BOOL, False, "The same, with predicates.",
    )  # fmt: skip
    TL_DISABLE_WGMMA = (
        "tl.disable_wgmma", _BOOL, False, "No group-wide matrix instructions.",
    )  # fmt: skip
    TL_DISABLE_SHUFFLE_ELECT = (
        "tl.disable_shuffle_elect", _BOOL, False, "Elect a lane by comparing its index.",
    )  # fmt: skip
    TL_DISABLE_THREAD_STORAGE_SYNC = (
        "tl.disable_thread_storage_sync", _BOOL, False, "Insert no barriers automatically.",
    )  # fmt: skip

    # Layout, vectors and reductions
    TL_LAYOUT_COST_MODEL = (
        "tl.layout_cost_model", _STR, "register-count", "Cost model of layout inference.",
    )  # fmt: skip
    TL_LAYOUT_VISUALIZATION_ENABLE = (
        "tl.layout_visualization_enable", _BOOL, False, "Draw the inferred layouts.",
    )  # fmt: skip
    TL_LAYOUT_VISUALIZATION_FORMATS = (
        "tl.layout_visualization_formats", (str, NoneType), None, "txt, pdf, png, svg or all.",
    )  # fmt: skip
    TIR_DISABLE_VECTORIZE = (
        "tirx.disable_vectorize", _BOOL, False, "No vectorisation.",
    )  # fmt: skip
    TL_DISABLE_VECTORIZE_256 = (
        "tl.disable_vectorize_256", _BOOL, False, "No 256-bit memory accesses.",
    )  # fmt: skip
    TL_ENABLE_VECTORIZE_PLANNER_VERBOSE = (
        "tl.enable_vectorize_planner_verbose", _BOOL, False, "Print why loops are vectorised.",
    )  # fmt: skip
    TL_REDUCER_FORCE_BASELINE = (
        "tl.reducer_force_baseline", _BOOL, False, "Reductions use only the reference plan.",
    )  # fmt: skip
    TL_ENABLE_REDUCER_PLAN_VERBOSE = (
        "tl.enable_reducer_plan_verbose", _BOOL, False, "Print the reduction plan.",
    )  # fmt: skip
    TL_ENABLE_FP32X2_REDUCTION = (
        "tl.enable_fp32x2_reduction", _BOOL, True, "Sums over packed pairs of float32.",
    )  # fmt: skip

    # Memory
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE = (
        "tl.enable_aggressive_shared_memory_merge", _BOOL, False,
        "Finer liveness for the reuse of shared memory.",
    )  # fmt: skip
    TL_DISABLE_SHARED_MEMORY_REUSE = (
        "tl.disable_shared_memory_reuse", _BOOL, False,
        "Give every shared buffer storage of its own.",
    )  # fmt: skip
    TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS = (
        "tl.debug_merge_shared_memory_allocations", _BOOL, False, "Print the shared memory plan.",
    )  # fmt: skip
    TIR_MERGE_STATIC_SMEM = (
        "tirx.merge_static_smem", _BOOL, True, "Merge static shared buffers.",
    )  # fmt: skip
    TL_STORAGE_REWRITE_DETECT_INPLACE = (
        "tl.storage_rewrite_detect_inplace", _BOOL, False, "Reuse local temporaries in place.",
    )  # fmt: skip
    TIR_DISABLE_STORAGE_REWRITE = (
        "tirx.disable_storage_rewrite", _BOOL, False, "No reuse of local storage.",
    )  # fmt: skip
    TL_DISABLE_SAFE_MEMORY_ACCESS = (
        "tl.disable_safe_memory_legalize", _BOOL, False, "No guards around partial tiles.",
    )  # fmt: skip
    TIR_NOALIAS = (
        "tirx.noalias", _BOOL, True, "Buffer parameters do not overlap.",
    )  # fmt: skip
    TL_CONFIG_INDEX_BITWIDTH = (
        "tl.config_index_bitwidth", _INT, 32, "Least width of index arithmetic in bits.",
    )  # fmt: skip

    # Checks
    TL_DISABLE_DATA_RACE_CHECK = (
        "tl.disable_data_race_check", _BOOL, True, "Do not check parallel loops for races.",
    )  # fmt: skip
    TL_DISABLE_BUFFER_INIT_CHECK = (
        "tl.disable_buffer_init_check", _BOOL, False, "No warning for reads before writes.",
    )  # fmt: skip
    TL_DISABLE_PRELOWER_SEMANTIC_CHECK = (
        "tl.disable_prelower_semantic_check", _BOOL, False, "Skip the checks before lowering.",
    )  # fmt: skip
    TL_VERIFY_PASSES = (
        "tl.verify_passes", _BOOL, False, "Verify every pass, as TILEC_VERIFY=1 does.",
    )  # fmt: skip
    TL_DISABLE_OUT_OF_BOUND_WARNING = (
        "tl.disable_out_of_bound_warning", _BOOL, True, "No warning for accesses out of range.",
    )  # fmt: skip

    # Scalar clean-up
    TIR_SIMPLIFY = (
        "tirx.Simplify", (bool, dict), True, "Simplify expressions.",
    )  # fmt: skip
    TL_SIMPLIFY = (
        "tl.Simplify", (dict,), _NO_OPTIONS, "Options of the simplifier, by sub-key.",
    )  # fmt: skip
    TL_SIMPLIFY_TRANSITIVELY_PROVE_INEQUALITIES = (
        "transitively_prove_inequalities", _BOOL, False, "Simplifier: chain inequalities.",
    )  # fmt: skip
    TL_SIMPLIFY_CONVERT_BOOLEAN_TO_AND_OF_ORS = (
        "convert_boolean_to_and_of_ors", _BOOL, False, "Simplifier: boolean normal form.",
    )  # fmt: skip
    TL_SIMPLIFY_APPLY_CONSTRAINTS_TO_BOOLEAN_BRANCHES = (
        "apply_constraints_to_boolean_branches", _BOOL, False, "Simplifier: use known conditions.",
    )  # fmt: skip
    TL_SIMPLIFY_PROPAGATE_KNOWNS_TO_PROVE_CONDITIONAL = (
        "propagate_knowns_to_prove_conditional", _BOOL, False, "Simplifier: prove conditions.",
    )  # fmt: skip
    TL_SIMPLIFY_PROPAGATE_KNOWNS_TO_SIMPLIFY_EXPRESSIONS = (
        "propagate_knowns_to_simplify_expressions", _BOOL, False, "Simplifier: use known values.",
    )  # fmt: skip
    TL_SIMPLIFY_ENABLE_LET_INLINE = (
        "enable_simplify_let_inline", _BOOL, True, "Simplifier: inline lets.",
    )  # fmt: skip
    TL_FORCE_LET_INLINE = (
        "tl.force_let_inline", _BOOL, False, "Inline every let first.",
    )  # fmt: skip
    TL_DISABLE_LOOP_UNSWITCHING = (
        "tl.disable_loop_unswitching", _BOOL, False, "No loop unswitching.",
    )  # fmt: skip
    TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE = (
        "tl.loop_unswitching_allow_non_trivial_else", _BOOL, False, "Unswitch more loops.",
    )  # fmt: skip
    TL_IF_STMT_BINDING_INLINE_REPLAYABLE_BINDS = (
        "tl.if_stmt_binding_inline_replayable_binds", _BOOL, True,
        "Distribute conditions over statements by evaluating scalar lets again.",
    )  # fmt: skip
    TIR_ENABLE_EQUIV_TERMS_IN_CSE = (
        "tir.enable_equiv_terms_in_cse_tir", _BOOL, True, "Share equivalent terms.",
    )  # fmt: skip
    TIR_DISABLE_CSE = (
        "tirx.disable_cse_tir", _BOOL, False, "Do not share common terms.",
    )  # fmt: skip
    TIR_ADD_LOWER_PASS = (
        "tirx.add_lower_pass", (list, tuple, NoneType), None,
        "Extra passes: Pass objects, run at the end of the pipeline's first stage.",
    )  # fmt: skip

    # Native compilers
    TL_ENABLE_FAST_MATH = (
        "tl.enable_fast_math", _BOOL, False, "Faster, less exact mathematical functions.",
    )  # fmt: skip
    TL_PTXAS_REGISTER_USAGE_LEVEL = (
        "tl.ptxas_register_usage_level", (int, NoneType), None, "Assembler's register level, 0-10.",
    )  # fmt: skip
    TL_DEVICE_COMPILE_FLAGS = (
        "tl.device_compile_flags", (str, list, tuple, NoneType), None,
        "Extra flags of the device compiler; a string is split as a shell would.",
    )  # fmt: skip
    TL_EMIT_LINE_DIRECTIVES = (
        "tl.emit_line_directives", _BOOL, False, "#line directives to the Python source.",
    )  # fmt: skip

    # Seeing what happens
    TL_ENABLE_DUMP_IR = (
        "tl.enable_dump_ir", _BOOL, False, "Write one IR file per pass.",
    )  # fmt: skip
    TL_DUMP_IR_DIR = (
        "tl.dump_ir_path", _STR, "./dump_ir", "Where the IR files go.",
    )  # fmt: skip
    TL_AST_PRINT_ENABLE = (
        "tl.ast_print_enable", _BOOL, False, "Print the IR before lowering.",
    )  # fmt: skip
    TL_PASS_PROFILE = (
        "tl.pass_profile", _BOOL, False, "Report the time of each pass.",
    )  # fmt: skip
    TL_PASS_PROFILE_THRESHOLD_MS = (
        "tl.pass_profile_threshold_ms", _FLOAT, 0.0, "Leave faster passes out of the report.",
    )  # fmt: skip
    TIR_ENABLE_DEBUG = (
        "tirx.enable_debug", _BOOL, False, "Extra checks in generated code.",
    )  # fmt: skip
    CUDA_KERNELS_OUTPUT_DIR = (
        "cuda.kernels_output_dir", _STR, "", "Write the generated device sources there.",
    )  # fmt: skip

    @property
    def spec(self) -> ConfigKey:
        """The same facts in the form that backends use for their own keys."""
        return ConfigKey(str(self.value), self.kind, self.default, self.doc)

    @property
    def is_simplifier_option(self) -> bool:
        """Whether this is a sub-key of `TL_SIMPLIFY` rather than a key by itself."""
        return "." not in self.value


SOURCE_FOLDER = PassConfigKey.CUDA_KERNELS_OUTPUT_DIR
"""The key of the folder for generated sources, of whatever target."""


def check_config(
    config: Mapping[Any, object] | None, extra: Mapping[str, ConfigKey] = MappingProxyType({})
) -> dict[str, object]:
    """Validate ``pass_configs``; keys become plain strings.

    Args:
        config: given keys (enum members or strings) and values.
        extra: keys that the backend at hand declares, by name.

    Raises:
        PassConfigError: unknown key, or a value of the wrong type.
    """
    checked: dict[str, object] = {}
    for given, value in (config or {}).items():
        key = lookup(given, extra)
        if key.name == PassConfigKey.TL_SIMPLIFY.value and isinstance(value, Mapping):
            value = {_sub_key(k).name: _sub_key(k).check(v) for k, v in value.items()}
        checked[key.name] = key.check(value)
    return checked


def lookup(given: object, extra: Mapping[str, ConfigKey] = MappingProxyType({})) -> ConfigKey:
    """The key that a name or enum member stands for.

    Raises:
        PassConfigError: there is none.
    """
    if isinstance(given, PassConfigKey):
        member = given
    else:
        name = str(given)
        if name in extra:
            return extra[name]
        try:
            member = PassConfigKey(name)  # type: ignore[call-arg] # lookup by value
        except ValueError:
            raise PassConfigError(
                f"there is no pass config key {name!r}",
                hint=did_you_mean(name, [*_TOP, *extra], listing="candidates"),
            ) from None
    if member.is_simplifier_option:
        raise PassConfigError(
            f"pass config {str(member)!r} is an option of the simplifier",
            hint=f"write {{{PassConfigKey.TL_SIMPLIFY.value!r}: {{{str(member)!r}: ...}}}}",
        )
    return member.spec


def _sub_key(given: object) -> ConfigKey:
    name = str(given)
    for member in _SUB:
        if member.value == name:
            return member.spec
    raise PassConfigError(
        f"the simplifier has no option {name!r}",
        hint=did_you_mean(name, [m.value for m in _SUB], listing="candidates"),
    )


_SUB = [m for m in PassConfigKey if m.is_simplifier_option]
_TOP = [str(m.value) for m in PassConfigKey if not m.is_simplifier_option]
