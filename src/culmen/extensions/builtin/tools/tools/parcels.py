"""Tools for parcels: an agent sees each public function with its docstring and annotations."""


def price(kilos: float, kilometres: float) -> float:
    """The price of a parcel in euros, by its weight and how far it goes."""
    # EVOLVE-BLOCK-START
    base = 3.0
    weight = 0.5 * kilos
    distance = 0.01 * kilometres
    return round(base + weight + distance, 2)
    # EVOLVE-BLOCK-END
