"""One question to a model: from the journal if it has been paid for, else within the budget, and into the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from invsim.client.prompt import Message
from invsim.live.budget import Budget, CapReachedError, Caps, Price, most_input_tokens
from invsim.live.completion import Completion, ProviderError, Settings
from invsim.live.journal import Journal, Where, key_of, line_of
from invsim.live.providers import Provider, open_provider


class Asker:
    """Asks a model, once for each question.

    Parameters
    ----------
    settings : Settings
    journal : Journal
    budget : Budget
        What the journal says was spent is counted in it first.
    provider : Provider
    """

    def __init__(self, settings: Settings, journal: Journal, budget: Budget, provider: Provider) -> None:
        self.settings, self.journal, self.budget = settings, journal, budget
        self.provider = provider
        journal.charge(budget)
        self.served: Counter[tuple[str | None, str]] = Counter()
        self.fresh = self.recalled = 0
        self.stopped: CapReachedError | ProviderError | None = None
        self.at: Where | None = None

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.provider.close()
        self.journal.close()

    def __call__(self, messages: Sequence[Message], where: Where) -> Completion:
        """Return the completion of a conversation.

        Raises
        ------
        CapReachedError, ProviderError
            Kept in ``stopped``, and the attempt in ``at``.
        """
        seed = self.settings.sampling_seed
        seed = None if seed is None else seed + where.stream
        key = key_of(self.settings, where, messages, seed)
        self.at = where
        found = self.journal.get(key)
        if found is None:
            try:
                found = self._pay(key, messages, where, seed)
            except (CapReachedError, ProviderError) as error:
                self.stopped = error
                raise
            self.fresh += 1
        else:
            self.recalled += 1
        self.served[found.model, found.served] += 1
        return found

    def _pay(self, key: str, messages: Sequence[Message], where: Where, seed: int | None) -> Completion:
        most_in = most_input_tokens(self.provider.body(messages, sampling_seed=seed))
        most_out = self.settings.max_tokens
        retries = self.budget.reserve(most_in, most_out, retries=self.settings.max_retries)
        bound = {"most_input": most_in, "most_output": most_out}
        self.journal.append(line_of("sent", key, where, **bound))
        try:
            found = self.provider.complete(messages, sampling_seed=seed, retries=retries)
        except ProviderError as error:
            sendings, lost = error.transport_retries + 1, error.unanswered
            ended = line_of("failed", key, where, error=str(error), sendings=sendings, unanswered=lost, **bound)
            self.journal.append(ended)
            self.budget.failed(sendings, lost, most_in, most_out)
            raise
        self.journal.append(line_of("done", key, where, completion=found, **bound))
        self.budget.settle(found, most_in, most_out)
        return found


def open_asker(settings: Settings, path: Path, caps: Caps, price: Price | None) -> Asker:
    """Return an asker with the journal at ``path`` and the provider that the settings name; close it after use."""
    budget = Budget(caps, price)
    journal = Journal(path)
    try:
        return Asker(settings, journal, budget, open_provider(settings))
    except BaseException:
        journal.close()
        raise
