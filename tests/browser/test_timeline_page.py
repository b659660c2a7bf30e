"""The timeline page in a real browser: what it shows, and what hands can do with it."""

import itertools

import pytest

from tests.browser import captures

pytestmark = pytest.mark.browser


def texts(page, column):
    return [page.texts[number] for number in getattr(page.events, column)]


def deads(page):
    return [place for place, result in enumerate(texts(page, "result")) if result == "dead"]


async def state(window):
    return await window.run("timeline.state()")


async def chosen(window):
    return (await state(window))["chosen"]


async def panel(window):
    return await window.run("document.getElementById('panel').innerText")


async def find(window, query):
    await window.press("/")
    await window.type(query)
    return await window.run("document.getElementById('found').textContent")


async def test_it_shows_a_lane_for_each_object_by_namespace_and_name(window, story_file):
    await window.open(story_file)
    assert (await state(window))["visible"] == ["iris", "bert-large", "whisper", "no-such-model"]


async def test_it_shows_everything_at_first(window, story_file, story):
    await window.open(story_file)
    seen = await state(window)
    length = sum(story.events.at)
    assert seen["from"] < 0 < length < seen["from"] + seen["span"]


async def test_each_event_stands_at_its_time_in_the_lane_of_its_object(window, day_file, day):
    await window.open(day_file)
    seen = await state(window)
    times = list(itertools.accumulate(day.events.at))
    told = await window.run("Array.from({length: timeline.state().count}, (_, i) => timeline.event(i))")
    names = ["/".join(day.texts[each] for each in parts[1:]) for parts in day.objects]
    assert [(each["at"], each["object"]) for each in told] == [
        (time, names[number]) for time, number in zip(times, day.events.object, strict=True)
    ]
    places = [(await window.run(f"timeline.place({each})"))["x"] for each in (0, 5_000, 9_999)]
    shares = [(times[each] - seen["from"]) / seen["span"] for each in (0, 5_000, 9_999)]
    assert [x - places[0] for x in places] == pytest.approx(
        [(share - shares[0]) * seen["width"] for share in shares], abs=0.01
    )


async def test_a_click_on_a_sign_selects_its_event(window, story_file, story):
    await window.open(story_file)
    (dead,) = deads(story)
    place = await window.run(f"timeline.place({dead})")
    await window.click(place["x"], place["y"])
    assert await chosen(window) == dead


async def test_the_panel_tells_labels_decision_reason_and_what_was_done(window, story_file, story):
    await window.open(story_file)
    await window.press("d")
    told = await panel(window)
    for text in (
        "Dead letter",
        "vision/no-such-model",
        "registered-model-id=not-a-number",
        "reject",
        "is no id of the registry",
        "after 1 s",
    ):
        assert text in told


async def test_who_hears_the_page_is_told_what_is_selected(window, story_file):
    await window.open(story_file)
    await window.press("d")
    live = await window.run("[live.getAttribute('aria-live'), live.textContent]")
    assert live[0] == "polite"
    assert live[1].startswith("Dead letter: created, vision/no-such-model, 22:40:31.000.")


async def test_the_lanes_can_be_reached_by_tab(window, story_file):
    await window.open(story_file)
    reached = []
    for _ in range(20):
        await window.press("Tab")
        reached.append(await window.run("document.activeElement.id"))
    assert {"search", "in", "out", "fit", "theme", "help", "sort", "scroll"} <= set(reached)


async def test_n_and_p_go_through_the_events_of_a_lane(window, story_file, story):
    await window.open(story_file)
    await window.press("ArrowDown")
    passed = []
    for key in ("n", "n", "n", "n", "n", "p"):
        await window.press(key)
        passed.append(await chosen(window))
    iris = [place for place, each in enumerate(story.events.object) if each == 0]
    assert passed == [*iris, iris[-1], iris[-2]]


async def test_shift_n_goes_through_the_events_of_all_lanes(window, story_file, story):
    await window.open(story_file)
    passed = []
    for _ in story.events.at:
        await window.press("N")
        passed.append(await chosen(window))
    assert passed == list(range(len(story.events.at)))


async def test_d_finds_every_dead_letter_and_begins_anew(window, written):
    hours = captures.page(captures.day(1_500, 45))
    await window.open(written(hours))
    dead, passed = deads(hours), []
    for _ in range(len(dead) + 1):
        await window.press("d")
        passed.append(await chosen(window))
    assert len(dead) > 3
    assert passed == [*dead, dead[0]]


async def test_a_selected_event_is_in_sight(window, day_file, day):
    await window.open(day_file)
    await window.press("D", "Enter", "Enter", "D", "D")
    place = await window.run(f"timeline.place({await chosen(window)})")
    box = await window.run(
        "(({left, right, top, bottom}) => [left, right, top, bottom])(lanes.getBoundingClientRect())"
    )
    assert box[0] <= place["x"] <= box[1]
    assert box[2] <= place["y"] <= box[3]


async def test_the_number_of_dead_letters_is_in_the_legend(window, day_file, day):
    await window.open(day_file)
    assert f"{len(deads(day))}\ndead letters" in await window.run("legend.innerText")


async def test_keys_zoom_and_move_and_fit(window, day_file):
    await window.open(day_file)
    whole = await state(window)
    await window.press("+", "+")
    closer = await state(window)
    await window.press("ArrowRight")
    later = await state(window)
    await window.press("f")
    again = await state(window)
    assert closer["span"] == pytest.approx(whole["span"] / 2.25)
    assert later["from"] == pytest.approx(closer["from"] + closer["span"] / 8)
    assert (again["from"], again["span"]) == (whole["from"], whole["span"])


async def test_zooming_never_leaves_what_there_is(window, day_file):
    await window.open(day_file)
    await window.press(*"+" * 50)
    closest = await state(window)
    await window.press("End", "ArrowRight", *"-" * 60)
    farthest = await state(window)
    assert closest["span"] == 1000
    assert farthest["span"] == farthest["whole"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("vision", lambda e: e["namespace"] == "vision"),
        ("payments/", lambda e: e["namespace"] == "payments"),
        ("model:7", lambda e: e["model"] == "7"),
        ("7 ns:speech", lambda e: e["namespace"] == "speech" and (e["model"] == "7" or "7" in e["name"])),
        ("IS NO ID", lambda e: e["result"] == "dead"),
        ("result:stale", lambda e: e["result"] == "stale"),
        ("nothing-has-this", lambda _: False),
    ],
)
async def test_a_search_finds_what_is_there(window, day_file, day, query, wanted):
    names = [[day.texts[each] for each in parts] for parts in day.objects]
    events = [
        {"namespace": names[number][1], "name": names[number][2], "model": model, "result": result, "object": number}
        for number, model, result in zip(day.events.object, texts(day, "model"), texts(day, "result"), strict=True)
    ]
    found = [each for each in events if wanted(each)]
    objects = len({each["object"] for each in found})
    await window.open(day_file)
    told = await find(window, query)
    seen = await state(window)
    assert (seen["hits"], len(seen["lanes"])) == (len(found), objects)
    assert told == f"{len(found):,} event{'s' * (len(found) != 1)}, {objects:,} object{'s' * (objects != 1)}"


async def test_enter_in_the_search_goes_to_what_is_found(window, story_file, story):
    await window.open(story_file)
    await find(window, "bert")
    await window.press("Enter")
    assert (await window.run(f"timeline.event({await chosen(window)})"))["object"] == "search-ranking/bert-large"


async def test_letters_that_are_typed_in_the_search_do_nothing_else(window, story_file):
    await window.open(story_file)
    await find(window, "dnpt")
    seen = await state(window)
    assert (seen["chosen"], seen["theme"]) == (-1, "light")


async def test_escape_leaves_the_search_and_shows_all_lanes(window, story_file):
    await window.open(story_file)
    await find(window, "iris")
    await window.press("Escape")
    assert len((await state(window))["visible"]) == 4


async def test_a_question_mark_shows_every_key(window, story_file):
    await window.open(story_file)
    await window.press("?")
    told = await window.run("keys.open && [...keys.querySelectorAll('kbd')].map((each) => each.textContent)")
    assert {
        "←",
        "→",
        "↑",
        "↓",
        "+",
        "\N{MINUS SIGN}",
        "f",
        "Home",
        "End",
        "n",
        "p",
        "N",
        "P",
        "d",
        "D",
        "/",
        "t",
        "?",
    } <= set(told)


async def test_escape_closes_the_keys_and_nothing_else(window, story_file):
    await window.open(story_file)
    await window.press("d", "?", "Escape")
    assert not await window.run("keys.open")
    assert await chosen(window) >= 0


async def test_only_the_lanes_that_can_be_seen_are_elements(window, day_file):
    await window.open(day_file)
    assert await window.run("document.querySelectorAll('.lane').length") < 30


async def test_scrolling_shows_the_lanes_below(window, day_file, day):
    await window.open(day_file)
    await window.run("document.getElementById('scroll').scrollTop = 38 * 100")
    await window.frame()
    seen = await state(window)
    assert seen["visible"][0] == seen["lanes"][100].partition("/")[2]


async def test_lanes_with_trouble_can_come_first(window, day_file, day):
    await window.open(day_file)
    await window.run("sort.value = 'trouble'; sort.dispatchEvent(new Event('change'))")
    await window.frame()
    dead = {day.events.object[place] for place in deads(day)}
    bad = {"/".join(day.texts[each] for each in day.objects[number][1:]) for number in dead}
    assert set((await state(window))["lanes"][: len(bad)]) == bad


async def test_a_cut_capture_says_so(window, written):
    await window.open(written(captures.page(captures.story(), cut="line 7 stops in the middle")))
    assert "line 7 stops in the middle" in await window.run("cut.checkVisibility() && cut.textContent")


async def test_a_whole_capture_does_not(window, story_file):
    await window.open(story_file)
    assert not await window.run("cut.checkVisibility()")


async def test_a_capture_without_events_says_so(window, written):
    await window.open(written(captures.page([])))
    assert await window.run("empty.textContent") == "The capture holds no event."
    assert window.complaints == []


async def test_without_action_lines_the_page_says_that_latency_is_not_told(window, written):
    await window.open(written(captures.page(captures.story(actions=False))))
    assert "Not told" in await panel(window)


async def test_latency_is_told_where_there_are_action_lines(window, story_file):
    await window.open(story_file)
    assert "the slowest 6.05 s" in await panel(window)


async def test_paper_is_light_and_the_window_is_as_before(window, story_file):
    await window.prefer("dark")
    await window.open(story_file)
    before = await state(window)
    await window.run("dispatchEvent(new Event('beforeprint'))")
    on_paper = await state(window)
    await window.run("dispatchEvent(new Event('afterprint'))")
    assert on_paper["theme"] == "light"
    assert await state(window) == before


async def test_it_can_be_printed(window, story_file):
    await window.open(story_file)
    assert (await window.pdf()).startswith(b"%PDF-")
