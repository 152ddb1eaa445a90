import sys, json, time
from concurrent.futures import ProcessPoolExecutor
from tests.onnx_suite.cases import load
from tests.onnx_suite.engines import judge, vtensor
out={}
t=time.time()
for name, case in load().items():
    if len(sys.argv)>2 and sys.argv[2] not in name: continue
    o=judge(case, vtensor)
    out[name]=(o.status,o.reason, case.supported)
    if o.status!="passed": print(name,o.status,o.reason[:300],case.supported,flush=True)
json.dump(out,open(sys.argv[1],"w"))
from collections import Counter
print(Counter(v[0] for v in out.values()), time.time()-t)
