#!/usr/bin/env python3
"""Checks all crates by .deny.toml: scripts/check/dependencies.py

Licences, denied crates, several versions of one crate, and where each comes from: the part of `cargo deny check` that needs no
network. cargo-deny itself is hundreds of crates to build, and its advisories a database from the network; where it is installed,
.ci/run asks it as well. Needs Python 3.11 (tomllib) and what Cargo has downloaded for Cargo.lock."""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def metadata(target):
    """Packages that are built for a target, but for those that tests alone need."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features", f"--filter-platform={target}"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met by allowed licences alone. `MIT/Apache-2.0` is the old way to write OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def alternatives(at):
        met, at = together(at)
        while at < len(tokens) and tokens[at] == "OR":
            other, at = together(at + 1)
            met = met or other
        return met, at

    def together(at):
        met, at = one(at)
        while at < len(tokens) and tokens[at] == "AND":
            other, at = one(at + 1)
            met = met and other
        return met, at

    def one(at):
        if tokens[at] == "(":
            met, at = alternatives(at + 1)
            return met, at + 1
        name, at = tokens[at], at + 1
        if at < len(tokens) and tokens[at] == "WITH":
            name, at = f"{name} WITH {tokens[at + 1]}", at + 2
        return name in allowed, at

    return alternatives(0)[0]


def complaints(rules):
    """What is not as the rules say, a line each."""
    packages = {}
    for target in rules["graph"]["targets"]:
        packages.update({package["id"]: package for package in metadata(target)["packages"]})
    allowed, skipped = set(rules["licenses"]["allow"]), {row["crate"] for row in rules["bans"]["skip"]}
    denied = {row["crate"]: row["reason"] for row in rules["bans"]["deny"]}
    # cargo-deny's own default: the public registry, and nothing beside it.
    sources = collections.Counter(package["source"] for package in packages.values() if package["source"])
    usual = next((source for source, _ in sources.most_common(1) if source.startswith("registry+")), None)
    versions = collections.defaultdict(set)
    for package in packages.values():
        name, version = package["name"], package["version"]
        if not package["license"] or not is_allowed(package["license"], allowed):
            yield f"{name} {version}: licence {package['license']} is not allowed"
        if package["source"] is not None and package["source"] != usual:
            yield f"{name} {version}: comes from {package['source']}"
        if name in denied:
            yield f"{name} {version}: {denied[name]}"
        if f"{name}@{version}" not in skipped:
            versions[name].add(version)
        if package["source"] is None:
            for needed in package["dependencies"]:
                if needed["req"] == "*" and needed["source"] is not None:
                    yield f"{name}: any version of {needed['name']} will do"
    for name, several in versions.items():
        if len(several) > 1:
            yield f"{name}: versions {', '.join(sorted(several))}"
    known = {f"{package['name']}@{package['version']}" for package in packages.values()}
    for crate in sorted(skipped - known):
        yield f"{crate}: is skipped in .deny.toml, and is not there"


def main():
    """Print and count."""
    with open(ROOT / ".deny.toml", "rb") as file:
        found = sorted(complaints(tomllib.load(file)))
    print("\n".join(found) or "dependencies: licences, versions and sources are as .deny.toml says")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
