"""The books of the sample: accounts, charges, refunds, and how often each idempotency key was executed."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OPENING_BALANCE = 100_000
"""What every account holds when it is first seen, in minor units."""


class OperationRefused(Exception):
    """The books do not allow an operation. `status` is the HTTP status, `code` a stable word."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Charge:
    """Money taken from an account. `balance` is what the account held just afterwards; amounts are minor units."""

    id: str
    account: str
    amount: int
    currency: str
    balance: int
    idempotency_key: str | None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an execution came to: its answer's status and JSON. A charge that was declined has one like any other."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refund:
    """Money given back for a charge."""

    id: str
    charge: str
    account: str
    amount: int
    currency: str
    balance: int
    idempotency_key: str | None


@dataclass(slots=True)
class Ledger:
    """The books. Each call to `charge` or `refund` executes: the caller's key is noted, never looked at.

    `outcomes` has the first outcome of each key, `cancelled` the keys that must never execute. With `file` every change is on disk before
    the call returns.
    """

    file: Path | None = None
    balances: dict[str, int] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)
    refunds: dict[str, Refund] = field(default_factory=dict)
    executions: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)

    def balance(self, account: str) -> int:
        return self.balances.get(account, OPENING_BALANCE)

    def charge(self, account: str, amount: int, currency: str, key: str | None, reference: str | None = None) -> Charge:
        self._count(key)
        balance = self.balance(account) - amount
        if balance < 0:
            raise OperationRefused(402, "insufficient_funds", f"account {account} holds {self.balance(account)}, less than {amount}")
        charge = Charge(f"ch_{len(self.charges) + 1:06}", account, amount, currency, balance, key, reference)
        self.charges[charge.id] = charge
        self.balances[account] = balance
        self._save()
        return charge

    def refund(self, charge_id: str, amount: int | None, key: str | None) -> Refund:
        """Give back `amount`, or all that is left of the charge."""
        self._count(key)
        charge = self.charges.get(charge_id)
        if charge is None:
            raise OperationRefused(404, "no_such_charge", f"there is no charge {charge_id}")
        left = charge.amount - sum(refund.amount for refund in self.refunds.values() if refund.charge == charge_id)
        amount = left if amount is None else amount
        if left == 0 or amount > left:
            raise OperationRefused(422, "refund_too_large", f"{left} is left of charge {charge_id}")
        balance = self.balance(charge.account) + amount
        refund = Refund(f"re_{len(self.refunds) + 1:06}", charge_id, charge.account, amount, charge.currency, balance, key)
        self.refunds[refund.id] = refund
        self.balances[charge.account] = balance
        self._save()
        return refund

    def note(self, key: str, outcome: Outcome) -> None:
        """Keep what the first execution under `key` came to."""
        self.outcomes.setdefault(key, outcome)
        self._save()

    def cancel(self, key: str) -> None:
        """From now on nothing executes under `key`. Callers ask for it: the books themselves never look."""
        self.cancelled.add(key)
        self._save()

    def _count(self, key: str | None) -> None:
        if key is not None:
            self.executions[key] += 1
            self._save()

    def _save(self) -> None:
        if self.file is None:
            return
        state = {
            "balances": self.balances,
            "charges": [asdict(charge) for charge in self.charges.values()],
            "refunds": [asdict(refund) for refund in self.refunds.values()],
            "executions": self.executions,
            "outcomes": {key: asdict(outcome) for key, outcome in self.outcomes.items()},
            "cancelled": sorted(self.cancelled),
        }
        fresh = self.file.with_name(self.file.name + ".new")
        fresh.write_text(json.dumps(state), "utf-8")
        fresh.replace(self.file)


def load(file: Path | None) -> Ledger:
    """The books as `file` has them; fresh ones if it does not exist. Raises ValueError if it is not a state of ours."""
    if file is None or not file.exists():
        return Ledger(file)
    try:
        state = json.loads(file.read_text("utf-8"))
        return Ledger(
            file,
            dict(state["balances"]),
            {entry["id"]: Charge(**entry) for entry in state["charges"]},
            {entry["id"]: Refund(**entry) for entry in state["refunds"]},
            Counter(state["executions"]),
            {key: Outcome(**outcome) for key, outcome in state.get("outcomes", {}).items()},
            set(state.get("cancelled", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a state of the sample") from error
