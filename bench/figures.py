#!/usr/bin/env python3
"""bench/figures.py PAGE.md... [--rms-norm A] [--add-rms-norm B] [--peers P]

Fills <!-- figures: NAME -->...<!-- end --> in the pages from what A: `gradus-bench rms_norm`, B:
`gradus-bench add_rms_norm` and P: `bench/compare_peers.py` wrote with --tsv."""
import argparse
import re

def table(heads, rows):
    rule = ["---" if h in "dtype, M x N, weight, with, best peer" else "---:" for h in heads]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows)) + "\n"

def read(path, first):  # a dict a line; lines that begin with `first` name the columns
    for line in (line.rstrip("\n").split("\t") for line in (open(path) if path else ())):
        head = line if line[0] == first else head
        if line is not head:
            yield dict(zip(head, line))

def speeds(rows, peers, *more):
    way = ["GB/s", "ceiling", "share"] + ["best peer", "ratio"] * bool(peers)
    heads = ["dtype", "M x N", *more, "forward us", *way, "backward us", *way, "dw error"]
    lines = []
    for r in rows:
        lines.append([r["dtype"], r["size"], *(r[m] for m in more)])
        for name in ("forward", "backward"):
            lines[-1] += [r[f"{name}_{key}"] for key in ("us", "gbps", "ceiling_gbps", "share")]
            lines[-1][-1] += "*" * (r["below_target"] in (name, "both"))
            p = peers.get((r["dtype"], r["size"], name), {})
            speed = {n: float(p[n]) for n in list(p)[6:-3] if p[n] != "nan"}  # of the peers alone
            best = max(speed, key=speed.get, default=None)
            cells = [f"{best} {speed[best]:.0f}", f"{float(p['ratio']):.3f}"] if best else ["", ""]
            lines[-1] += cells * bool(peers)
        lines[-1].append(r["dw_error"])
    return table(heads, lines)

args = argparse.ArgumentParser(usage=__doc__)
for name in ("--rms-norm", "--add-rms-norm", "--peers", "page"):
    args.add_argument(name, nargs="+" if name == "page" else None)
args = args.parse_args()
rms, peers = list(read(args.rms_norm, "table")), {"rms_norm": {}, "add_rms_norm": {}}
for p in read(args.peers, "op"):
    peers[p["op"]][p["dtype"], f"{p['rows']} x {p['cols']}", p["way"]] = p
heads, calls, empty = ([r for r in rms if k in r] for k in ("weight", "with", "empty_kernels"))
sizes = [r for r in rms if r not in heads + calls + empty]
idle = [["", f"{r['empty_kernels']} empty kernels", "", r["host_us"], ""] for r in empty]
blocks = {"rms_norm": speeds(sizes, peers["rms_norm"]), "heads": speeds(heads, {}, "weight"),
          "add_rms_norm": speeds(read(args.add_rms_norm, "table"), peers["add_rms_norm"]),
          "host": table(["dtype", "M x N", "with", "forward us", "backward us"],
                        [list(r.values())[1:] for r in calls] + idle)}
for page in args.page:
    text = open(page).read()
    for name, block in blocks.items():
        if block.count("\n") > 2:
            text = re.sub(f"(<!-- figures: {name} -->\n).*?(<!-- end -->)",
                          lambda found: f"{found[1]}\n{block}\n{found[2]}", text, flags=re.S)
    open(page, "w").write(text)
