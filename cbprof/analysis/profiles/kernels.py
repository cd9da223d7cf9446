"""What kernels are called in tables, and which group of device work each belongs to.

A name of a compiler holds all types and sizes; people write the function, and of a GEMM the tile and the type::

    void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, ...>, ...>(...)   flash_fwd_splitkv
    nvjet_sm90_tst_128x32_64x10_2x1_v_bz_splitK_TNT                                   nvjet gemm 128x32 bf16 splitK
    void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, ...>
                                                                                                    elementwise add
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from cbprof.trace import COPY_KINDS, Kind


class Group(StrEnum):
    """A sort of device work."""

    ATTENTION = "attention"
    GEMM = "GEMM"
    NORM = "norm"
    COPY = "copy"
    COMMUNICATION = "communication"
    OTHER = "other"


class Rule(NamedTuple):
    """Kernels whose short name holds ``pattern`` belong to ``group``: they are ``what``."""

    group: Group
    what: str
    pattern: re.Pattern[str]


def _rule(group: Group, what: str, pattern: str) -> Rule:
    return Rule(group, what, re.compile(pattern, re.IGNORECASE))


RULES = (
    _rule(Group.COPY, "writes to the KV cache", r"(reshape|concat)_and_cache|store_kv_?cache|set_kv_buffer"),
    _rule(Group.ATTENTION, "flash attention", r"flash_(fwd|bwd|fprop|bprop)|flash_?(attn|mla)"),
    _rule(Group.ATTENTION, "other attention by name", r"attention|attn|attend\b|fmha|\bmha_|sdpa|\bpaged_|\bmla_"),
    _rule(Group.ATTENTION, "FlashInfer", r"(Batch|Single)(Prefill|Decode)With|MergeStates?\b"),
    _rule(Group.ATTENTION, "SGLang's Triton decode", r"_fwd_(grouped_)?kernel_stage"),
    _rule(Group.GEMM, "GEMM by name", r"gemm|gemv|matmul|wvSplitK"),
    _rule(Group.GEMM, "cuBLAS and Tensile", r"nvjet|splitK_?reduce|cublas|^Cijk_"),
    _rule(Group.GEMM, "quantised and grouped GEMM", r"marlin|machete|fused_moe|moe_mm|triton_tem\w*_(b|add)?mm\b"),
    _rule(Group.NORM, "norms", r"norm(?!al)|\bbn_[bf]w_"),
    _rule(Group.COPY, "copies and fills", r"(?<!_to_)copy|memcpy|memset|(?<!pre)fill|transpose"),
    _rule(Group.COPY, "rows picked out or put in place", r"gather(?!TopK)|scatter|index_?(select|put)|_index$"),
)
"""The first that holds decides. What is a copy, or moves data between devices, the kind of its span says already."""

_KIND_GROUPS = {Kind.GPU_COMM: Group.COMMUNICATION, **dict.fromkeys(COPY_KINDS, Group.COPY)}

# What only wraps a function that its template names.
_WRAPPERS = re.compile(r"device_kernel|Kernel2?|kentry|enable_sm\d+\w*|DeviceKernel")
_SAYS_NOTHING = re.compile(r"kernel|run|launch|impl", re.IGNORECASE)
_NOISE = re.compile(r"\(anonymous namespace\)::|\{lambda[^}]*\}|^void |^std::enable_if<.*?>::type ")
_ELEMENTWISE = re.compile(r"\w*elementwise_kernel\w*|(?P<reduce>reduce)_kernel")
_STRUCTURE = re.compile(
    r"gpu_kernel_impl\w*|\w*(Unary|Binary)Functor|opmath\w*|func_wrapper\w*|ReduceOp|TensorIterator\w*|operator|const"
    r"|unsigned|int|long|float|double|bool|char|short|signed|void|BFloat16|Half|Float8\w*|complex|Array|array|OpaqueType"
)
_WORD = re.compile(r"[A-Za-z_]\w*(?!\w|::)")  # no namespace
_AFFIXES = re.compile(r"^CUDAFunctor(OnSelf|OnOther)?_|(Functor|Ops|Op|CUDAKernelImpl)$|(_kernel)?(_cuda|_impl)*$")
_KERNEL = re.compile(r"(?<=\w)_?kernel(\d+(_\d+)*)?$", re.IGNORECASE)

_CUDNN_SDPA = re.compile(r"cudnn_generated_\w*?_sdpa_(?:sm\d+_)?(?P<what>flash_[fb]prop|\w+?)_.*")
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?(?P<types>[a-z]+)_(?P<tile>\d+x\d+)_\w+")
_TENSILE = re.compile(r"Cijk_[A-Z]\w+?_(?P<types>[A-Z0-9]+)_\w*?MT(?P<tile>\d+x\d+)\w*")
_TILED = re.compile(
    r"(?:sm\d+_)?(?P<library>[a-z]+)\w*?_[a-z0-9_]*?(?P<word>(?<![a-z])[a-z]?gemm)\w*?_(?:tilesize)?(?P<tile>\d+x\d+)\w*"
)
_SPLIT = re.compile(r"split_?k", re.IGNORECASE)
# Of cuBLAS by its letters, of others by their words.
_TYPE_OF_LETTER = {"t": "bf16", "h": "fp16", "s": "fp32", "q": "fp8"}
_TYPE_OF_TENSILE = {"B": "bf16", "H": "fp16", "S": "fp32", "F": "fp8"}
_TYPES = re.compile(r"bf16|f16|tf32|e4m3|e5m2|f8|s8|i8")
_TYPE_WORDS = {"f16": "fp16", "e4m3": "fp8", "e5m2": "fp8", "f8": "fp8", "s8": "int8", "i8": "int8"}


def group_of(name: str, kind: Kind) -> Group:
    """The group of a device span by its kind, or by the short name of its kernel (see :data:`RULES`)."""
    if kind in _KIND_GROUPS:
        return _KIND_GROUPS[kind]
    kernel = name.rpartition(": ")[2]
    return next((rule.group for rule in RULES if rule.pattern.search(kernel)), Group.OTHER)


def short_kernel(name: str) -> str:
    """A kernel as people write it: ``flash_fwd_splitkv``, ``cutlass gemm 128x128 bf16``, ``elementwise add``.

    What the program calls it stays in front: ``layers.0.attention: gemm``.
    """
    mark, colon, kernel = name.rpartition(": ")
    return mark + colon + (_short(kernel) or kernel)


def _short(kernel: str) -> str:
    text = _demangled(kernel) if kernel.startswith("_Z") else kernel
    text = _NOISE.sub("", text)
    function, template = _function(text)
    if elementwise := _ELEMENTWISE.fullmatch(function):
        sort = "reduce" if elementwise["reduce"] else "elementwise"
        return f"{sort} {_operation(template)}".rstrip()
    while _WRAPPERS.fullmatch(function) and template:
        inner, template = _function(template[1:])
        if not inner:
            break
        function = inner
    return _gemm(function, kernel) or _plain(function)


def _function(text: str) -> tuple[str, str]:
    """The function of a name without namespaces, and its template with all that follows."""
    end = re.search(r"[<(,>]", text)
    head, rest = (text[: end.start()], text[end.start() :]) if end else (text, "")
    words = head.strip().split("::")
    if _SAYS_NOTHING.fullmatch(words[-1]) and len(words) > 1 and not rest.startswith("<cutlass"):
        words.pop()
    return words[-1], rest if rest.startswith("<") else ""


def _operation(template: str) -> str:
    """What an element-wise kernel computes: the first word of its template that is no type and no wrapper."""
    for word in _WORD.findall(template):
        if not _STRUCTURE.fullmatch(word):
            return _AFFIXES.sub("", _AFFIXES.sub("", word)).lower()
    return ""


def _gemm(function: str, kernel: str) -> str:
    """``nvjet gemm 128x32 bf16 splitK`` where the name tells library, tile and type."""
    split = " splitK" if _SPLIT.search(function) else ""
    if found := _NVJET.fullmatch(function):
        return f"nvjet gemm {found['tile']}{_typed(_TYPE_OF_LETTER.get(found['types'][0]))}{split}"
    if found := _TENSILE.fullmatch(function):
        return f"Tensile gemm {found['tile']}{_typed(_TYPE_OF_TENSILE.get(found['types'][0]))}{split}"
    if found := _TILED.fullmatch(function):
        word = _TYPES.search(function) or _TYPES.search(kernel)
        kind = _TYPE_WORDS.get(word[0], word[0]) if word else None
        return f"{found['library']} {found['word']} {found['tile']}{_typed(kind)}{split}"
    return ""


def _typed(name: str | None) -> str:
    return f" {name}" if name else ""


def _plain(function: str) -> str:
    if found := _CUDNN_SDPA.fullmatch(function):
        return f"cudnn sdpa {found['what']}"
    return _KERNEL.sub("", function)


def _demangled(name: str) -> str:
    """The identifiers of a mangled name (Itanium ABI): its function, and in brackets those of its template.

    ``_ZN7cutlass13device_kernelIN5flash16FlashAttnFwdSm90...`` as ``cutlass::device_kernel<flash::FlashAttnFwdSm90``.
    """
    return "".join(_parts(name.removeprefix("_Z")))


def _parts(text: str) -> Iterator[str]:
    place, separator = 0, ""
    while place < len(text):
        digits = re.match(r"\d+", text[place:])
        if digits is None:
            if text[place] == "I":
                separator = "<"
            place += 1
            continue
        start = place + digits.end()
        place = start + int(digits[0])
        if int(digits[0]) and len(text) >= place and _WORD.fullmatch(text[start:place]):
            identifier = text[start:place]
            if not identifier.startswith("_GLOBAL__N"):
                yield separator + identifier
                separator = "::"
        else:
            place = start
