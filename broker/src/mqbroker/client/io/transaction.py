"""Transactions: messages that are sent and messages that are accepted become so together, or not at all."""

from __future__ import annotations

from types import TracebackType

from mqbroker.client import inputs
from mqbroker.client.errors import TransactionFailed
from mqbroker.client.io.driver import Driver


class Transaction:
    """One transaction: `async with connection.transaction() as tx`, which commits, or rolls back on an error.

    What belongs to it says so: `sender.send(message, transaction=tx)`, `message.accept(transaction=tx)`. It ends with
    its connection at the latest.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._txn: inputs.Txn | None = None

    def __repr__(self) -> str:
        return f"<Transaction: {'open' if self._txn is not None else 'not begun, or ended'}>"

    async def begin(self) -> Transaction:
        """Begin; `async with` does it."""
        if self._txn is not None:
            raise TransactionFailed("the transaction has begun already: it is committed or rolled back first")
        asked = self._driver.ask(inputs.Begin)
        try:
            self._txn = await self._driver.patient(asked)
        except BaseException:
            self._driver.disown(asked)
            raise
        return self

    async def commit(self) -> None:
        """All of it happens. Raises TransactionFailed, or TransactionInDoubt if the answer was lost."""
        await self._finish(is_commit=True)

    async def rollback(self) -> None:
        """Nothing of it happens; messages that were accepted in it come again."""
        await self._finish(is_commit=False)

    async def _finish(self, *, is_commit: bool) -> None:
        txn, self._txn = txn_of(self, self._driver), None
        await self._driver.patient(self._driver.ask(lambda token: inputs.Finish(txn, is_commit, token)))

    async def __aenter__(self) -> Transaction:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._txn is None:
            return  # committed or rolled back by hand
        if kind is None:
            await self.commit()
        else:
            # For no answer, which may never come: the error that brought us here says more, and may be a timeout.
            txn, self._txn = self._txn, None
            self._driver.roll_back(txn)


def txn_of(transaction: Transaction, driver: Driver) -> inputs.Txn:
    """What names it on the connection of a sender or receiver. Raises TransactionFailed outside of its time, and where
    a redirect took that one to another broker.
    """
    if driver is not transaction._driver:
        raise TransactionFailed("the sender or receiver is at another broker than the transaction; see redirect-to")
    if transaction._txn is None:
        raise TransactionFailed("the transaction has not begun, or has ended: begin one with `async with`")
    return transaction._txn
