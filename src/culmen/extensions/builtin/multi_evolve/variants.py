"""Measured protein variants: public formats, and a generator of epistatic landscapes whose truth is known.

A file has a header and a row for every variant, in one of the forms the public benchmarks use:

    mutant,DMS_score[,...]            substitutions joined by ":", as in ProteinGym: A24G:T55K
    mutation,property_value[,...]     substitutions joined by "/", the wild type "WT": A24G/T55K
    variant<tab>score[<tab>...]       substitutions joined by ",", no wild type, as in nn4dms: A24G,T55K

Other columns are ignored. A substitution is the wild type's letter, the position and the new letter.

    python variants.py slice FILE OUT --low 0 --high 79 --wild 0    the part of a protein between two positions
    python variants.py cases data/*.csv > cases.jsonl   the task's cases, every third file for the test
"""

import argparse
import csv
import json
import math
import re
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
COLUMNS = (("mutant", "DMS_score"), ("mutation", "property_value"), ("variant", "score"))
SUBSTITUTION = re.compile(rf"([{LETTERS}])(0|[1-9][0-9]{{0,4}})([{LETTERS}*])")
TRAIN_ORDER, TEST_ORDERS = 2, (3, 10)  # of the published set-up: learn from 0 to 2 substitutions, predict 3 to 10


class VariantError(ValueError):
    """The file does not have the public format; the text says where."""


def read(path):
    """The variants of a file, a dict from a tuple of substitutions (by position; () is the wild type) to the mean of
    its measurements; raises VariantError."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            delimiter = "\t" if "\t" in file.readline() else ","
            file.seek(0)
            return _variants(path, csv.DictReader(file, delimiter=delimiter))
    except OSError as error:
        raise VariantError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise VariantError(f"{path} is no CSV file: {error}") from None


def _variants(path, rows):
    names = rows.fieldnames or []
    columns = next((pair for pair in COLUMNS if set(pair) <= set(names)), None)
    if columns is None:
        found = ", ".join(names) or "none"
        raise VariantError(
            f"{path} needs the columns {', or '.join(' and '.join(pair) for pair in COLUMNS)}, not {found}"
        )
    measured, wild = {}, {}
    for row in rows:
        where = f"{path}:{rows.line_num}"
        text, number = row[columns[0]], row[columns[1]]
        variant = parsed(text or "", where)
        for letter, position, _ in (_pieces(each) for each in variant):
            if wild.setdefault(position, letter) != letter:
                raise VariantError(f"{where}: position {position} is {wild[position]} elsewhere and {letter} here")
        if not (number or "").strip():
            continue  # not measured
        try:
            value = float(number)
        except ValueError:
            raise VariantError(f"{where}: '{number}' in {columns[1]} is not a number") from None
        if math.isfinite(value):
            measured.setdefault(variant, []).append(value)
    if not measured:
        raise VariantError(f"{path} has no measured variant")
    return {variant: math.fsum(values) / len(values) for variant, values in measured.items()}


def parsed(text, where=""):
    """A variant's substitutions in the order of their positions; raises VariantError."""
    pieces = [piece for piece in re.split("[:/,]", text.strip()) if piece and piece.upper() != "WT"]
    for piece in pieces:
        if not SUBSTITUTION.fullmatch(piece):
            raise VariantError(f"{where}: '{piece}' is no substitution such as A24G")
    positions = [_pieces(piece)[1] for piece in pieces]
    if len(set(positions)) < len(positions):
        raise VariantError(f"{where}: '{text}' changes one position twice")
    return tuple(sorted(pieces, key=lambda piece: _pieces(piece)[1]))


def _pieces(substitution):
    return substitution[0], int(substitution[1:-1]), substitution[-1]


def split(measured):
    """(training variants, their values, variants to predict, their values), as published.

    Training: the wild type, singles and doubles. To predict: three to ten substitutions. All substitutions of a variant
    must have been measured as singles, else it is left out. Raises VariantError if one of the two is too small.
    """
    singles = {variant[0] for variant in measured if len(variant) == 1}
    known = [variant for variant in sorted(measured) if singles.issuperset(variant)]
    train = [variant for variant in known if len(variant) <= TRAIN_ORDER]
    test = [variant for variant in known if TEST_ORDERS[0] <= len(variant) <= TEST_ORDERS[1]]
    if len(train) < 2 or len(test) < 10:
        raise VariantError(
            f"{len(train)} variants of up to {TRAIN_ORDER} substitutions and {len(test)} of {TEST_ORDERS[0]} to "
            f"{TEST_ORDERS[1]} whose substitutions were all measured alone: at least 2 and 10 are needed"
        )
    return train, [measured[v] for v in train], test, [measured[v] for v in test]


def window(measured, low, high, wild=None):
    """The variants that `split` uses of those changed between two positions only, no stop codons, by four decimals.

    `wild` is the wild type's fitness, of files that leave it out. Raises VariantError as `split` does.
    """
    inside = {
        variant: value
        for variant, value in measured.items()
        if all(low <= _pieces(each)[1] <= high and not each.endswith("*") for each in variant)
    }
    train, fitness, test, values = split(inside if wild is None else {(): wild, **inside})
    return {variant: round(value, 4) for variant, value in zip(train + test, fitness + values)}


class FitnessLandscape:
    """A made-up protein: a latent sum of single and pairwise effects, seen through a curve, with noise.

    seed         of everything
    sites        positions that are varied, each with `letters` substitutions
    epistasis    standard deviation of pairwise effects relative to that of single ones; `dense` of all pairs have one
    curve        "sigmoid": fitness saturates at both ends, as fluorescence does; "linear": it is the latent sum
    """

    def __init__(self, seed, sites=12, letters=2, epistasis=0.5, dense=0.2, curve="sigmoid"):
        rng = np.random.default_rng(seed)
        self.curve = curve
        positions = np.sort(rng.choice(np.arange(2, 240), sites, replace=False))
        wild = rng.choice(list(LETTERS), sites)
        self.choices = [
            [f"{old}{position}{new}" for new in rng.choice(list(LETTERS.replace(old, "")), letters, replace=False)]
            for position, old in zip(positions, wild)
        ]
        flat = [each for some in self.choices for each in some]
        self.single = dict(zip(flat, rng.normal(-0.5, 0.8, len(flat)).tolist()))  # most substitutions harm
        site = {each: number for number, some in enumerate(self.choices) for each in some}
        self.pair = {
            frozenset(pair): float(rng.normal(0, 0.8 * epistasis))
            for pair in combinations(flat, 2)
            if site[pair[0]] != site[pair[1]] and rng.random() < dense
        }
        self._rng = rng

    def truth(self, variant):
        """The fitness of a tuple of substitutions, without noise."""
        latent = sum(self.single[each] for each in variant)
        latent += sum(self.pair.get(frozenset(pair), 0.0) for pair in combinations(variant, 2))
        return 1 / (1 + math.exp(-(1.0 + latent))) if self.curve == "sigmoid" else latent

    def sample(self, doubles=120, higher=240, noise=0.03):
        """Measurements of the wild type, all singles, some doubles and variants of three to eight substitutions."""
        rng = self._rng
        variants = {(): None} | {(each,): None for some in self.choices for each in some}
        orders = range(3, min(8, len(self.choices)) + 1)
        for order, count in ((2, doubles), *((order, higher // len(orders)) for order in orders)):
            wanted, tries = len(variants) + count, 0
            while len(variants) < wanted and tries < 50 * count:
                sites = np.sort(rng.choice(len(self.choices), order, replace=False))
                variants[tuple(str(rng.choice(self.choices[site])) for site in sites)] = None
                tries += 1
        return {variant: self.truth(variant) + noise * float(rng.normal()) for variant in variants}


def write(path, measured):
    """Write measurements in ProteinGym's form; the wild type's row is WT."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["mutant", "DMS_score"])
        rows.writerows([":".join(variant) or "WT", repr(value)] for variant, value in measured.items())


def main():
    parser = argparse.ArgumentParser(description="Measured protein variants.")
    commands = parser.add_subparsers(dest="command", required=True)
    cut = commands.add_parser("slice", help="write the variants that are changed between two positions only")
    cut.add_argument("file")
    cut.add_argument("out")
    cut.add_argument("--low", type=int, required=True)
    cut.add_argument("--high", type=int, required=True)
    cut.add_argument("--wild", type=float, help="the wild type's fitness, where the file leaves it out")
    lines = commands.add_parser("cases", help="print a line for cases.jsonl for every file")
    lines.add_argument("files", nargs="+")
    options = parser.parse_args()
    try:
        if options.command == "slice":
            return write(options.out, window(read(options.file), options.low, options.high, options.wild))
        for number, path in enumerate(map(Path, options.files)):
            split(read(path))
            part = "test" if number % 3 == 2 else "train"
            print(json.dumps({"id": path.stem, "info": {"csv": path.name}, "split": part}))
    except (VariantError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
