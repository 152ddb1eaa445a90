"""
oneDNN's primitives as steps of native/include/vtensor/step.h.

A function that makes a primitive checks its arguments before oneDNN gets them: it raises
ValueError if they are wrong, and Unimplemented if oneDNN has no kernel for them. "Slots"
are those of the primitive's step, in order. oneDNN chooses the layout of a ``Desc.any``.
``attr`` None: no followers, strict arithmetic. All functions may be called from any
thread.
"""

from collections.abc import Sequence

class Unimplemented(RuntimeError):
    pass

class Desc:
    """
    A tensor's dims, element type and layout.

    The layout may be open (kind "any"): oneDNN chooses it when it makes a primitive.

    Immutable, hashable. 1 to 12 dims of at least 0 elements each; a tensor with a dim of 0
    has no memory (nbytes is 0). Element types: f32, bf16, f16, s32, s8, u8.
    """

    @staticmethod
    def any(dims: Sequence[int], dtype: str) -> Desc:
        """
        Return a descriptor with an open layout. ValueError: invalid dims or dtype.
        """

    @staticmethod
    def tag(dims: Sequence[int], dtype: str, tag: str) -> Desc:
        """
        Return a descriptor in the layout of a format tag, one of tags().

        ValueError: invalid dims or dtype, an unknown tag, or a tag for another rank.
        """

    @staticmethod
    def strided(dims: Sequence[int], dtype: str, strides: Sequence[int]) -> Desc:
        """
        Return a descriptor without blocks, with one stride per dim, in elements.

        A stride of 0 repeats one element along its dim.

        ValueError: invalid dims or dtype; a negative stride; elements that partly share memory.
        """

    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def kind(self) -> str:
        """
        The kind of layout: "blocked", "any" (open) or "opaque".

        A layout without blocks is "blocked", too. The details of an opaque layout are oneDNN's;
        only weights and the operands of reorders may have one.
        """

    @property
    def strides(self) -> tuple[int, ...]:
        """
        The stride of each dim, in elements; () unless the kind is "blocked".

        Of a dim in blocks it is the stride from one block to the next.
        """

    @property
    def padded_dims(self) -> tuple[int, ...]: ...
    @property
    def padded_offsets(self) -> tuple[int, ...]: ...
    @property
    def inner_blocks(self) -> tuple[tuple[int, int], ...]:
        """Each block, outermost first, as (elements, dim); () unless "blocked"."""

    @property
    def nbytes(self) -> int:
        """
        The bytes from the buffer's address to the end of the last element.

        Pads and offset0 are included; a gap that a stride leaves after the last element is not.
        0 if the layout is open.
        """

    @property
    def offset0(self) -> int:
        """
        The offset of the first element from the buffer's address, in elements.
        """

    def reshape(self, dims: Sequence[int]) -> Desc:
        """
        Return a descriptor of the same memory with other dims of as many elements in all.

        ValueError: another number of elements, or a layout in which the dims cannot be divided so.
        """

    def permute(self, perm: Sequence[int]) -> Desc:
        """
        Return a descriptor of the same memory whose dim i is dim ``perm[i]`` of this one.

        ValueError: ``perm`` is no permutation of the dims.
        """

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> Desc:
        """
        Return a descriptor of a box: along each dim, ``dims`` elements from ``offsets`` on.

        The buffer's address stays the same; offset0 grows.

        Raises:
            ValueError: the box is not inside of the tensor, or the kind is not "blocked".
            Unimplemented: the box cuts a block.
        """

    def __eq__(self, arg: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __repr__(self) -> str: ...

def tags() -> tuple[tuple[str, int], ...]:
    """
    Return (name, rank) of each format tag, such as ("aBcd16b", 4).

    Aliases such as "nchw" are left out.
    """

class Attr:
    """
    A primitive's followers and arithmetic mode.

    Immutable, hashable. Followers are fused operators, at most 32, which apply in order to
    the primitive's result. Each method returns a new Attr with one follower more, or raises
    ValueError if nothing more can follow.
    """

    def __init__(self, fpmath: str = "strict") -> None:
        """
        Start without followers. ValueError: ``fpmath`` is unknown.

        ``fpmath``: the type that f32 operands may be converted to: "strict" (none), "bf16", "f16",
        "tf32" or "any".
        """

    def sum(self, scale: float = 1.0) -> Attr:
        """
        Append dst = result + scale * (former dst). ValueError: ``scale`` is not finite.
        """

    def eltwise(self, alg: str, alpha: float = 0.0, beta: float = 0.0) -> Attr:
        """
        Append dst = alg(result), where ``alg`` is one of eltwise_algs().

        ``alpha``, ``beta``: the parameters of ``alg``. ValueError: ``alg`` is unknown, or a number
        is NaN.
        """

    def binary(self, alg: str, src1: Desc) -> Attr:
        """
        Append dst = alg(result, src1), where src1 broadcasts to dst.

        ``alg``: one of binary_algs(), except comparisons. The follower at position n of the chain,
        from 0 on, adds a slot "postn_src1" before dst.
        ValueError: ``alg`` is unknown or a comparison, or ``src1`` is invalid.
        """

    def bounds(self, high: float) -> Attr:
        """
        Append dst = min(max(result, 0), high), which keeps NaN, as the last follower.

        ValueError: ``high`` is negative or NaN, or sum() comes before.
        """

    def gelu(self) -> Attr:
        """
        Append dst = result * (1 + erf(result / sqrt(2))) / 2 as the last follower.

        Only for a dst of floats. ValueError: sum() comes before.
        """

    @property
    def fpmath(self) -> str: ...
    def __len__(self) -> int: ...
    def __eq__(self, arg: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __repr__(self) -> str: ...

def eltwise_algs() -> tuple[str, ...]: ...
def binary_algs() -> tuple[str, ...]: ...
def reduction_algs() -> tuple[str, ...]: ...

class Primitive:
    """
    A kernel of oneDNN for one request.

    The first ``__vtensor_step__`` compiles it. It always runs with ``threads`` OpenMP threads,
    whichever thread runs it: the number that was set in the thread that made the primitive.
    """

    @property
    def kind(self) -> str: ...
    @property
    def kernel(self) -> str:
        """oneDNN's name of the implementation, such as "jit:avx512_core"."""

    @property
    def scratch_bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def descs(self) -> dict[str, Desc]:
        """
        The descriptor of each slot but scratch, by the slot's name.

        An open layout is replaced by the one that oneDNN chose.
        """

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the step's slots in order; "scratch", if any, is last."""

    def next_kernel(self) -> Primitive | None:
        """
        Return the next implementation that oneDNN offers for the same request.

        None if this is the last one.
        """

    def __vtensor_step__(self) -> object:
        """
        Return the kernel's step in a capsule, as native/include/vtensor/step.h defines it.
        """

    def compiling(self) -> object:
        """
        Return a capsule with a step without slots that compiles this primitive.

        Any thread may run it. It ignores a failure, which ``__vtensor_step__`` then raises.
        """

    def __repr__(self) -> str: ...

class InPlanes:
    """
    Primitives on f32 as sums of two bf16.

    Its attributes are those of ``Primitive``. It has one kernel. It splits src, which is f32.
    """

    @property
    def kind(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def descs(self) -> dict[str, Desc]:
        """
        The descriptor of each slot but scratch; of one plane where there are two.
        """

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the step's slots in order; "scratch", if any, is last."""

    def next_kernel(self) -> None:
        """Return None: there is one kernel."""

    def __vtensor_step__(self) -> object:
        """
        Return the step in a capsule, as native/include/vtensor/step.h defines it.
        """

    def __repr__(self) -> str: ...

def product_in_planes(primitives: Sequence[Primitive]) -> InPlanes:
    """
    Make a product of f32 by three products of bf16: lo * hi + hi * lo + hi * hi.

    With two primitives, weights have one plane, and hi * lo is missing. All compute f32 from bf16
    in one layout: the first without followers; the second of three with a sum; the last with the
    addition of an operand like dst, then the followers. Slots: those of the last without that
    operand. Each plane of weights is in the layout of its descriptor.
    """

def reorder_to_planes(whole: Primitive, planes: int) -> InPlanes:
    """
    Make a reorder of f32 to one plane or two planes of bf16; slots src, dst, scratch.

    ``whole``: the reorder from f32 to f32 in the layout of a plane. To one plane the step rounds
    as ml_dtypes does: subnormal numbers stay, and a NaN becomes the quiet NaN of its sign.
    """

def convolution(
    src: Desc,
    weights: Desc,
    bias: Desc | None,
    dst: Desc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attr: Attr | None = None,
) -> Primitive:
    """
    Make a convolution over 1 to 3 spatial dims; slots src, weights, bias (if given), dst.

    Dims: src N C ..., weights O I ... or G O I ... (O and I of one group), bias O, dst N O ...
    Strides, dilations (1: dense) and pads have one number for each spatial dim, in elements.
    Any operand may be a ``Desc.any``.
    """

def deconvolution(
    src: Desc,
    weights: Desc,
    bias: Desc | None,
    dst: Desc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attr: Attr | None = None,
) -> Primitive:
    """
    Make a transposed convolution over 1 to 3 spatial dims.

    Slots and dims as for convolution. Each element of src, times the filter, is added to a
    window of dst. Pads are cut off dst; an end pad below 0, by less than a stride, makes dst
    larger. Any operand may be a ``Desc.any``.
    """

def resampling(alg: str, src: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    Make an interpolation of src to dst's sizes along 1 to 3 spatial dims; slots src, dst.

    ``alg``: "nearest" or "linear". Element y of dst is the value of src at
    (y + 0.5) * src size / dst size - 0.5. dst may be a ``Desc.any``.
    """

def pooling(
    kind: str,
    src: Desc,
    dst: Desc,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attr: Attr | None = None,
) -> Primitive:
    """
    Make a pooling over 1 to 3 spatial dims; slots src, dst.

    ``kind``: "max", "avg_include_padding" or "avg_exclude_padding". ``kernel``: the window's
    sizes; these, strides, dilations (1: dense) and pads have one number for each spatial dim.
    dst may be a ``Desc.any``.
    """

def matmul(
    src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
) -> Primitive:
    """
    Make a matrix product: src (... M K) times weights (... K N), plus bias.

    Equal ranks of at least 2; leading dims of 1 broadcast; bias broadcasts to dst. Slots: src,
    weights, bias (if given), dst. Any operand may be a ``Desc.any``.
    """

def inner_product(
    src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
) -> Primitive:
    """
    Make an inner product: src (N C ...) times weights (O C ...), plus bias (O); dst is N O.

    It sums over all dims but N and O. Slots: src, weights, bias (if given), dst. Any operand
    may be a ``Desc.any``.
    """

def eltwise(
    alg: str, src: Desc, dst: Desc, alpha: float = 0.0, beta: float = 0.0, attr: Attr | None = None
) -> Primitive:
    """
    Make an operation on each element: ``alg``, one of eltwise_algs().

    ``alpha``, ``beta``: the parameters of ``alg``. Slots: src, dst, which may be the same
    memory.
    """

def binary(alg: str, src0: Desc, src1: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    Make an operation on pairs of elements: ``alg``, one of binary_algs().

    Dims of 1 broadcast. Slots: src0, src1, dst.
    """

def prelu(src: Desc, weights: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    Make a PReLU: src, times weights where src is below 0; weights broadcast to src.

    Slots: src, weights, dst.
    """

def concat(
    axis: int, srcs: Sequence[Desc], dst: Desc | None = None, attr: Attr | None = None
) -> Primitive:
    """
    Make a concatenation along dim ``axis``; slots src0, src1, ..., dst.

    Without ``dst``, oneDNN chooses the layout of the result.
    """

def reorder(src: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    Make a copy in another layout or element type; slots src, dst.

    A conversion to integers rounds to even and saturates.
    """

def batch_normalization(
    src: Desc,
    dst: Desc,
    epsilon: float,
    scale: bool = True,
    shift: bool = True,
    relu: bool = False,
    attr: Attr | None = None,
) -> Primitive:
    """
    Make a normalization of each channel (dim 1).

    dst = (src - mean) / sqrt(variance + epsilon) * scale + shift; with ``relu``, max(0,
    that). mean, variance, scale and shift have one element of f32 for each channel. Slots:
    src, mean, variance, scale (if ``scale``), shift (if ``shift``), dst.
    """

def layer_normalization(
    src: Desc,
    stat: Desc,
    dst: Desc,
    epsilon: float,
    scale: bool = True,
    shift: bool = True,
    attr: Attr | None = None,
) -> Primitive:
    """
    Make a normalization over the last dim.

    dst = (src - mean) / sqrt(variance + epsilon) * scale + shift. mean and variance are
    results with the descriptor ``stat``: f32 with src's dims but the last. scale and shift
    have one element of f32 for each element of the last dim. Slots: src, scale (if
    ``scale``), shift (if ``shift``), mean, variance, dst.
    """

def recurrent(
    kind: str,
    direction: str,
    src_layer: Desc,
    weights_layer: Desc,
    weights_iter: Desc,
    dst_layer: Desc,
    dst_iter: Desc,
    bias: Desc | None = None,
    weights_peephole: Desc | None = None,
    src_iter: Desc | None = None,
    src_iter_c: Desc | None = None,
    dst_iter_c: Desc | None = None,
    activation: str = "",
    alpha: float = 0.0,
) -> Primitive:
    """
    Make a layer of a recurrent network of f32; a slot for each descriptor, by its name.

    Args:
        kind: "vanilla_rnn" (with ``activation`` "relu", of slope ``alpha``, "tanh" or
            "logistic"), "lstm" (gates i f c o), "gru" (u r o), or "lbr_gru", which resets after
            the product.
        direction: "forward", "reverse" or "bidirectional".

    Dims: src_layer T N C, weights_layer 1 D C G O, weights_iter 1 D O G O, bias 1 D G O (one
    gate more for "lbr_gru"), weights_peephole 1 D 3 O, src_iter and dst_iter (with _c: an
    lstm's cell state) 1 D N O, dst_layer T N D*O; T time steps, D directions, G gates, O
    units. Weights may be a ``Desc.any``.
    """

def softmax(
    src: Desc, dst: Desc, axis: int, log: bool = False, attr: Attr | None = None
) -> Primitive:
    """
    Make a softmax along dim ``axis`` (0 to rank - 1), or its logarithm; slots src, dst.
    """

def lrn(
    alg: str,
    src: Desc,
    dst: Desc,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    attr: Attr | None = None,
) -> Primitive:
    """
    Make a local response normalization, over a window of n elements.

    dst = src * (k + alpha / n * sum of squares) ** -beta. ``alg``: "across_channels" (n is
    size) or "within_channel" (n is size to the power of the number of spatial dims). ``size``
    is odd. Slots: src, dst.
    """

def reduction(
    alg: str, src: Desc, dst: Desc, p: float = 0.0, eps: float = 0.0, attr: Attr | None = None
) -> Primitive:
    """
    Make a reduction by ``alg``, one of reduction_algs(); slots src, dst.

    It reduces the dims of which dst has 1 element and src more. ``p``, at
    least 1, and ``eps`` are the parameters of the norms.
    """

def bounds_info() -> dict[str, int]:
    """
    Return how often Attr.bounds and Attr.gelu needed work after a kernel of oneDNN.

    ``searches``: number of results that were searched for wrong numbers since a flag of the
    processor said that there may be some; ``repeats``: number of runs that were repeated
    without bounds or gelu, which were then applied exactly.
    """

def cache_info() -> dict[str, int]:
    """
    Return the counts of the cache, in which equal requests find one primitive.

    ``hits``, ``misses``: requests; ``size``: primitives that it holds, ``capacity`` at most.
    """

def cache_let_go() -> None:
    """
    Release the primitives that the calling thread has made since its last call of this.

    A primitive stays if a step holds it, if it is among those used last, or if oneDNN never
    frees its code.
    """

def cache_clear() -> None:
    """Empty the cache, and set the counts of hits and misses to 0."""

def set_kept_code_limit(limit: int) -> None:
    """
    Limit the number of convolutions that are compiled to code that oneDNN never frees.

    Beyond the limit, element-wise followers of a convolution run in kernels of their own, if
    oneDNN has fast ones for them.
    """

def set_cache_capacity(capacity: int) -> None:
    """
    Set how many primitives the cache holds, those used last; 0: none.

    Primitives that a step holds are found all the same; those whose code oneDNN never frees
    stay.
    """

def isa() -> str:
    """
    Return the best instruction set for kernels ("avx2", "avx512_bf16", "amx", ...).

    "none" below sse41. The call fixes the instruction set for the process.
    """

def limit_isa(name: str) -> None:
    """
    Cap the instruction set of this process, before the first use of oneDNN.

    ``name``: "sse41", "avx", "avx2", "avx512", "avx512_bf16", "amx", ..., or "max" for no cap.

    Raises:
        ValueError: ``name`` is unknown.
        RuntimeError: oneDNN has fixed another instruction set already.
    """

def version() -> str:
    """Return the version of the loaded oneDNN, such as "3.2.0"."""

def library_path() -> str:
    """Return the path of the file of the loaded oneDNN."""
