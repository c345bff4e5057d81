"""The failures of a world file: what happens when, and whether it can happen in that order."""

from __future__ import annotations

from headwater.errors import suggest
from headwater.sim.worlds.model import Failure, FailureKind, ProviderSettings, StreamSettings
from headwater.tomltext import SectionReader


def one_of(names: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


class FailureReader:
    """Reads what happens, and checks that it can happen in the order of its times."""

    def __init__(
        self,
        providers: ProviderSettings,
        hosts: tuple[str, ...] | None,
        end: float,
        streams: StreamSettings | None,
        source: str | None,
    ) -> None:
        self.drawn = providers.count is not None
        self.names = providers.names or (hosts if not self.drawn else None)
        self.number = providers.count or len(providers.names or hosts or ())
        self.end = end
        self.streams = streams
        self.source = source

    def read_all(self, sections: list[SectionReader]) -> tuple[Failure, ...]:
        before = [len(section.mistakes.noted) for section in sections]
        happens = tuple(self._read(section) for section in sections)
        # The order can be judged only if each of them is known.
        if sections and len(sections[0].mistakes.noted) == before[0]:
            self._check_order(list(zip(happens, sections, strict=True)))
        return happens

    def _read(self, section: SectionReader) -> Failure:
        section.check_keys("at", "event", "provider", "providers", "substreams", "factor")
        at = section.number("at")
        if self.end and at >= self.end:
            section.note("at", f"at is {at:g}, but the simulation ends at {self.end:g} seconds")
        if "event" not in section:
            section.note("event", f"[[failures]] needs event = {one_of(tuple(FailureKind))}")
        kind = FailureKind(section.choice("event", tuple(FailureKind), "dies"))
        factor = self._factor(section, kind)
        if kind is FailureKind.rates:
            for key in ("provider", "providers"):
                if key in section:
                    section.note(
                        key, f"{key} is not for event = rates; write substreams = a number"
                    )
            return Failure(at, kind, None, self._substreams(section), factor)
        if "substreams" in section:
            section.note("substreams", "substreams is for event = rates")
        name, count = self._providers(section)
        if name is not None and name == self.source and kind is not FailureKind.slows:
            section.note("provider", f"{name} is the source of the dissemination, which never dies")
        return Failure(at, kind, name, count, factor)

    def _factor(self, section: SectionReader, kind: FailureKind) -> float:
        takes = kind in (FailureKind.slows, FailureKind.rates)
        if not takes and "factor" in section:
            section.note("factor", f"factor is not for event = {kind}")
        return section.positive("factor") if takes else 1.0

    def _substreams(self, section: SectionReader) -> int:
        count = section.whole_number("substreams", least=1)
        if self.streams is None:
            section.note("event", "event = rates needs [streams]")
        elif count > self.streams.substreams:
            section.note(
                "substreams", f"substreams is {count}, but there are {self.streams.substreams}"
            )
        return count

    def _providers(self, section: SectionReader) -> tuple[str | None, int]:
        if ("provider" in section) == ("providers" in section):
            section.note("provider", "write provider = a name, or providers = how many are drawn")
            return None, 1
        if "providers" in section:
            return None, section.whole_number("providers", least=1)
        name = section.string("provider")
        if self.drawn:
            section.note(
                "provider",
                "providers are drawn, so their names are not known; give "
                "their names in [providers], or write providers = how many",
            )
        elif self.names is not None and name not in self.names:
            section.note("provider", f"no provider {name}; {suggest(name, self.names)}")
        return name, 1

    def _check_order(self, happens: list[tuple[Failure, SectionReader]]) -> None:
        """Note what cannot happen: the death of the dead, the return of the living, the end of all."""
        dead: set[str] = set()
        number = 0
        for failure, section in sorted(happens, key=lambda pair: pair[0].at):
            name = failure.provider
            if failure.kind is FailureKind.returns:
                if (name is not None and name not in dead) or failure.count > number:
                    # What cannot happen does not count for what is checked after it.
                    section.note("event", _cannot_return(failure, number))
                    continue
                number -= failure.count
                dead -= {name or ""}
            elif failure.kind is FailureKind.dies:
                if name in dead:
                    section.note("event", f"{name} cannot die: it is dead already")
                    continue
                number += failure.count
                dead |= {name} if name else set()
                if 0 < self.number <= number:
                    section.note("event", "no provider would be left alive")


def _cannot_return(failure: Failure, dead: int) -> str:
    if failure.provider is not None:
        return f"{failure.provider} cannot return: it is not dead at {failure.at:g} seconds"
    return f"{failure.count} cannot return: at {failure.at:g} seconds {dead} are dead"
