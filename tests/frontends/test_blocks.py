"""Parts of networks as exporters write them today, for several shapes: as ONNX Runtime has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import Array, f32, model, runtime
from vtensor import Session

#: The nodes, the weights, and what is fed for two sizes.
Block = tuple[str, dict[str, Any], Callable[[int, int], dict[str, Array]]]

BLOCKS: dict[str, Block] = {
    "attention": (
        """g (float[batch,seq,16] x, int64[batch,seq] mask) => (float[batch,seq,16] y) {
            q0 = MatMul(x,wq) q1 = Add(q0,bq) k0 = MatMul(x,wk) v0 = MatMul(x,wv) sh = Shape(x)
            b = Gather<axis=0>(sh,zero) t = Gather<axis=0>(sh,one) b1 = Unsqueeze(b,ax)
            t1 = Unsqueeze(t,ax) hs = Concat<axis=0>(b1,t1,four,four) q2 = Reshape(q1,hs)
            k2 = Reshape(k0,hs) v2 = Reshape(v0,hs) q = Transpose<perm=[0,2,1,3]>(q2)
            k = Transpose<perm=[0,2,3,1]>(k2) v = Transpose<perm=[0,2,1,3]>(v2) a0 = MatMul(q,k)
            a1 = Div(a0,two) m1 = Unsqueeze(mask,ax12) mf = Cast<to=1>(m1) mi = Sub(onef,mf)
            mb = Cast<to=9>(mi) ms0 = Where(mb,minf,mi) ex = Concat<axis=0>(b1,ione,t1,t1)
            ms = Expand(ms0,ex) a2 = Add(a1,ms) p = Softmax<axis=-1>(a2) o = MatMul(p,v)
            o1 = Transpose<perm=[0,2,1,3]>(o) os = Concat<axis=0>(b1,t1,sixteen) o2 = Reshape(o1,os)
            y = MatMul(o2,wo) }""",
        {
            "wq": f32(16, 16),
            "bq": f32(16),
            "wk": f32(16, 16, seed=1),
            "wv": f32(16, 16, seed=2),
            "wo": f32(16, 16, seed=3),
            "zero": np.array(0),
            "one": np.array(1),
            "ax": np.array([0]),
            "four": np.array([4]),
            "two": np.float32(2.0),
            "ax12": np.array([1, 2]),
            "onef": np.float32(1.0),
            "minf": np.float32(-3.4028234663852886e38),
            "ione": np.array([1]),
            "sixteen": np.array([16]),
        },
        lambda n, t: {"x": f32(n, t, 16), "mask": np.tril(np.ones((n, t), np.int64), t - 2)},
    ),
    "layernorm+gelu": (
        """g (float[b,t,16] x) => (float[b,t,16] y) {
            m = ReduceMean<axes=[-1]>(x) d = Sub(x,m) p = Pow(d,two) v = ReduceMean<axes=[-1]>(p)
            e = Add(v,eps) sq = Sqrt(e) n = Div(d,sq) g1 = Mul(n,w) h = Add(g1,bb) a = Div(h,r2)
            er = Erf(a) e1 = Add(er,one) hm = Mul(h,e1) ge = Mul(hm,half) c = Pow(ge,three)
            c1 = Mul(c,k) c2 = Add(ge,c1) c3 = Mul(c2,k2) th = Tanh(c3) t1 = Add(th,one)
            t2 = Mul(ge,t1) y = Mul(t2,half) }""",
        {
            "two": np.float32(2.0),
            "three": np.float32(3.0),
            "eps": np.float32(1e-5),
            "w": f32(16),
            "bb": f32(16),
            "r2": np.float32(1.4142135),
            "one": np.float32(1.0),
            "half": np.float32(0.5),
            "k": np.float32(0.044715),
            "k2": np.float32(0.7978845),
        },
        lambda n, t: {"x": f32(n, t, 16)},
    ),
    "roberta positions": (
        """g (int64[b,t] ids) => (float[b,t,8] y) {
            ne = Equal(ids,pad) nn = Not(ne) m = Cast<to=6>(nn) cs = CumSum(m,ax)
            cs0 = Cast<to=6>(cs) inc = Mul(cs0,m) l = Cast<to=7>(inc) pos = Add(l,pad)
            y = Gather<axis=0>(table,pos) }""",
        {"pad": np.array(1), "ax": np.array(1), "table": f32(40, 8)},
        lambda n, t: {
            "ids": np.where(
                np.arange(n * t).reshape(n, t) % 5 == 4, 1, np.arange(n * t).reshape(n, t) % 7 + 2
            )
        },
    ),
    "causal mask trilu": (
        """g (float[b,t,t2] x) => (float[b,t,t2] y) {
            sh = Shape(x) t = Gather<axis=0>(sh,one) t1 = Unsqueeze(t,ax0)
            sz = Concat<axis=0>(t1,t1) c = ConstantOfShape<value=float[1] {1.0}>(sz)
            u = Trilu<upper=1>(c,kone) bl = Cast<to=9>(u) y = Where(bl,minf,x) }""",
        {"one": np.array(1), "ax0": np.array([0]), "kone": np.array(1), "minf": np.float32(-1e9)},
        lambda n, t: {"x": f32(n, t, t)},
    ),
    "kv scatternd": (
        """g (float[b,4,t,8] cache, float[b,4,1,8] new, int64[b,1] pos) => (float[b,4,t,8] y) {
            ct = Transpose<perm=[0,2,1,3]>(cache) nt = Transpose<perm=[0,2,1,3]>(new)
            sh = Shape(pos) b = Gather<axis=0>(sh,zero) r = Range(zero,b,one) ru = Unsqueeze(r,ax1)
            ru2 = Unsqueeze(ru,ax2) pu = Unsqueeze(pos,ax2) ix = Concat<axis=2>(ru2,pu)
            sc = ScatterND(ct,ix,nt) y = Transpose<perm=[0,2,1,3]>(sc) }""",
        {"zero": np.array(0), "one": np.array(1), "ax1": np.array([1]), "ax2": np.array([2])},
        lambda n, t: {
            "cache": f32(n, 4, t, 8),
            "new": f32(n, 4, 1, 8, seed=4),
            "pos": (np.arange(n) % t).reshape(n, 1),
        },
    ),
    "rope slice concat": (
        """g (float[b,t,4,8] x, int64[b,t] pos) => (float[b,t,4,8] y) {
            pf = Cast<to=1>(pos) pu = Unsqueeze(pf,ax2) fr = MatMul(pu,inv)
            em = Concat<axis=-1>(fr,fr) co = Cos(em) si = Sin(em) cu = Unsqueeze(co,ax2)
            su = Unsqueeze(si,ax2) x1 = Slice(x,z0,h,am) x2 = Slice(x,h,big,am) n2 = Neg(x2)
            ro = Concat<axis=-1>(n2,x1) a = Mul(x,cu) bb = Mul(ro,su) y = Add(a,bb) }""",
        {
            "ax2": np.array([2]),
            "inv": f32(1, 4),
            "z0": np.array([0]),
            "h": np.array([4]),
            "big": np.array([9223372036854775807]),
            "am": np.array([-1]),
        },
        lambda n, t: {"x": f32(n, t, 4, 8), "pos": np.arange(n * t).reshape(n, t)},
    ),
    "split einsum": (
        """g (float[b,t,48] x) => (float[b,4,t,t2] y) {
            q0,k0,v0 = Split<axis=-1>(x,sp) q = Reshape(q0,hs) k = Reshape(k0,hs)
            y = Einsum<equation="bthd,bshd->bhts">(q,k) }""",
        {"sp": np.array([16, 16, 16]), "hs": np.array([0, 0, 4, 4])},
        lambda n, t: {"x": f32(n, t, 48)},
    ),
    "expand where range mask": (
        """g (int64[b] len, float[b,t] x) => (float[b,t] y) {
            sh = Shape(x) t = Gather<axis=0>(sh,one) r = Range(zero,t,one) ru = Unsqueeze(r,ax0)
            ex = Expand(ru,sh) lu = Unsqueeze(len,ax1) m = Less(ex,lu) y = Where(m,x,zf) }""",
        {
            "one": np.array(1),
            "zero": np.array(0),
            "ax0": np.array([0]),
            "ax1": np.array([1]),
            "zf": np.float32(0.0),
        },
        lambda n, t: {"len": np.arange(n) + 1, "x": f32(n, t)},
    ),
    "bert embeddings": (
        """g (int64[b,t] ids) => (float[b,t,8] y) {
            w = Gather(wt,ids) sh = Shape(ids) b = Gather<axis=0>(sh,zero)
            t = Gather<axis=0>(sh,one) t1 = Unsqueeze(t,ax0) b1 = Unsqueeze(b,ax0)
            pid = Slice(pids,z0,t1,a1) es = Concat<axis=0>(b1,t1) be = Concat<axis=0>(b1,l512)
            eq = Equal(be,m1) cs = ConstantOfShape<value=int64[1] {1}>(two) mm = Mul(cs,m1)
            wh = Where(eq,mm,be) tt0 = Expand(types,wh) pe = Expand(pid,es)
            tt = GatherElements<axis=1>(tt0,pe) te = Gather(tw,tt) pp = Gather(pw,pid) a = Add(w,te)
            y = Add(a,pp) }""",
        {
            "wt": f32(30, 8),
            "zero": np.array(0),
            "one": np.array(1),
            "ax0": np.array([0]),
            "pids": np.arange(512)[None],
            "z0": np.array([0]),
            "a1": np.array([1]),
            "l512": np.array([512]),
            "m1": np.array([-1, -1]),
            "two": np.array([2]),
            "types": np.zeros((1, 512), np.int64),
            "tw": f32(2, 8),
            "pw": f32(512, 8),
        },
        lambda n, t: {"ids": np.arange(n * t).reshape(n, t) % 30},
    ),
    "mean pooling + normalize": (
        """g (float[b,t,8] x, int64[b,t] mask) => (float[b,8] y) {
            mu = Unsqueeze(mask,ax) sh = Shape(x) me = Expand(mu,sh) mf = Cast<to=1>(me)
            p = Mul(x,mf) sm = ReduceSum<keepdims=0>(p,one) ms = ReduceSum<keepdims=0>(mf,one)
            mc = Clip(ms,eps,) d = Div(sm,mc) l = ReduceL2<axes=[1],keepdims=1>(d) lc = Clip(l,eps,)
            le = Expand(lc,s2) y = Div(d,le) }""",
        {
            "ax": np.array([-1]),
            "one": np.array([1]),
            "eps": np.array([1e-9], "f4"),
            "s2": np.array([1, 8]),
        },
        lambda n, t: {"x": f32(n, t, 8), "mask": np.tril(np.ones((n, t), np.int64), t - 2)},
    ),
    "dynamic pad/chunk": (
        """g (float[b,t] x) => (float[b,n,4] y) {
            sh = Shape(x) t = Gather<axis=0>(sh,one) r = Mod(t,four) nz = Sub(four,r)
            nr = Mod(nz,four) nu = Unsqueeze(nr,ax0) pd = Concat<axis=0>(z3,nu) px = Pad(x,pd)
            y = Reshape(px,rs) }""",
        {
            "one": np.array(1),
            "four": np.array(4),
            "ax0": np.array([0]),
            "z3": np.array([0, 0, 0]),
            "rs": np.array([0, -1, 4]),
        },
        lambda n, t: {"x": f32(n, t)},
    ),
    "t5 buckets": (
        """g (float[b,t,8] x) => (float[1,4,t,t2] y) {
            sh = Shape(x) t = Gather<axis=0>(sh,one) r = Range(zero,t,one) a = Unsqueeze(r,ax1)
            bb = Unsqueeze(r,ax0) d = Sub(bb,a) lt = Less(zero,d) li = Cast<to=7>(lt)
            l16 = Mul(li,k16) ad = Abs(d) sm = Less(ad,k8) af = Cast<to=1>(ad) dv = Div(af,k8f)
            lg = Log(dv) lm = Div(lg,lmax) l8 = Mul(lm,k8f) lc = Cast<to=7>(l8) l9 = Add(lc,k8)
            mn = Min(l9,k15) w = Where(sm,ad,mn) bk = Add(l16,w) e = Gather(tab,bk)
            tr = Transpose<perm=[2,0,1]>(e) y = Unsqueeze(tr,ax0) }""",
        {
            "one": np.array(1),
            "zero": np.array(0),
            "ax1": np.array([1]),
            "ax0": np.array([0]),
            "k16": np.array(16),
            "k8": np.array(8),
            "k8f": np.float32(8.0),
            "lmax": np.float32(2.77),
            "k15": np.array(15),
            "tab": f32(32, 4),
        },
        lambda n, t: {"x": f32(n, t, 8)},
    ),
}


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str, libraries: list[str] | None) -> None:
    text, weights, feed = BLOCKS[name]
    proto = model(text, **weights)
    with Session(proto, libraries=libraries, threads=1) as session:
        for sizes in ((1, 5), (3, 9), (2, 14)):
            feeds = feed(*sizes)
            for ours, theirs in zip(session.run(None, feeds), runtime(proto, feeds), strict=True):
                assert ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
