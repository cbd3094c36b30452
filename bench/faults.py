"""Why a benchmark ends early. The text is for the reader of the terminal: what, where, what to do."""


class BenchFault(Exception):
    """Something is missing or a broker did not behave: no figures."""


class WrongCounts(BenchFault):
    """Messages were lost, doubled, damaged or refused. A fast broker that does that has no figures either."""
