"""What the timeline page looks like: contrast, shapes, labels that do not collide, and how fast it is drawn."""

import itertools

import pytest

pytestmark = pytest.mark.browser

TEXT_CONTRAST_MIN = 4.5
SIGN_CONTRAST_MIN = 3.0
SIGNS = ("applied", "noop", "duplicate", "stale", "retry", "dead")
FRAMES = 60

CONTRAST = """(selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility()
  && each.textContent.trim()).map((each) => {
    let ground = each;
    while (ground && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
    return [each.tagName + "." + each.className, getComputedStyle(each).color,
            ground ? getComputedStyle(ground).backgroundColor : "rgb(255, 255, 255)"];
})"""
RESOLVED = """(name) => {
  const probe = document.createElement("i");
  document.body.append(probe);
  probe.style.color = `var(--${name})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}"""


def channels(colour):
    return [float(each) for each in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(left, right):
    low, high = sorted((luminance(left), luminance(right)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read(window, day_file, scheme):
    await window.prefer(scheme)
    await window.open(day_file)
    await window.press("d")
    pairs = await window.run(
        f"({CONTRAST})('h1, h2, h3, p, dt, dd, li, button, b, span, label, select, input, .lane span, #count')"
    )
    assert len(pairs) > 100
    too_low = {
        (name, colour, ground)
        for name, colour, ground in pairs
        if contrast(channels(colour), channels(ground)) < TEXT_CONTRAST_MIN
    }
    assert too_low == set()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_sign_stands_out_from_its_ground(window, day_file, scheme):
    await window.prefer(scheme)
    await window.open(day_file)
    for ground, sign in itertools.product(("ground", "select", "raised"), SIGNS):
        colours = [channels(await window.run(f"({RESOLVED})('{name}')")) for name in (sign, ground)]
        assert contrast(*colours) >= SIGN_CONTRAST_MIN, (sign, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pixels_of_a_sign_have_its_colour(window, story_file, story, scheme):
    await window.prefer(scheme)
    await window.open(story_file)
    dead = next(place for place, each in enumerate(story.events.result) if story.texts[each] == "dead")
    pixel = await window.run(
        f"""(() => {{ const {{x, y}} = timeline.place({dead}); const box = lanes.getBoundingClientRect();
        return [...lanes.getContext("2d").getImageData(x - box.left - 5, y - box.top, 1, 1).data]; }})()"""
    )
    wanted = channels(await window.run(f"({RESOLVED})('dead')"))
    assert all(abs(got - want) <= 2 for got, want in zip(pixel[:3], wanted, strict=True)), (pixel, wanted)


async def test_signs_differ_in_shape_and_not_in_colour_alone(window, day_file):
    await window.open(day_file)
    shapes = await window.run(
        "[...legend.querySelectorAll('svg')].map((sign) => sign.innerHTML.replace(/(fill|stroke)=\"[^\"]*\"/g, ''))"
    )
    assert len(set(shapes)) == len(shapes) == len(SIGNS)


async def test_the_theme_follows_the_system_until_it_is_chosen(window, story_file):
    await window.prefer("dark")
    await window.open(story_file)
    themes = [await theme(window)]
    await window.prefer("light")
    await window.frame()
    themes.append(await theme(window))
    await window.press("t")
    themes.append(await theme(window))
    assert themes == ["dark", "light", "dark"]


async def theme(window):
    return (await window.run("timeline.state()"))["theme"]


async def test_labels_of_the_axis_do_not_touch_each_other(window, day_file):
    await window.open(day_file)
    collisions = await window.run(
        """(() => {
            const drawn = []; const found = [];
            const original = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                if (this.canvas.id === "ticks") drawn.push([text, x, x + this.measureText(text).width, y]);
                original.call(this, text, x, y);
            };
            for (let n = 0; n < 90; n += 1) {
                timeline.zoom(1 / 1.2, 200 + 7 * n % 300); drawn.length = 0; timeline.draw();
                for (const [a, b] of drawn.flatMap((a, i) => drawn.slice(i + 1).map((b) => [a, b])))
                    if (a[3] === b[3] && a[1] < b[2] + 4 && b[1] < a[2] + 4) found.push([a, b]);
                if (drawn.filter(([, , , y]) => y > 15).length < 2) found.push(["too few labels", n]);
            }
            CanvasRenderingContext2D.prototype.fillText = original;
            return found;
        })()"""
    )
    assert collisions == []


@pytest.mark.parametrize(("width", "height"), [(360, 640), (768, 700), (1280, 800), (1920, 1080)])
async def test_nothing_overlaps_or_leaves_the_window(window, day_file, width, height):
    await window.size(width, height)
    await window.open(day_file)
    await window.press("d")
    assert await window.run("document.documentElement.scrollWidth <= innerWidth")
    boxes = await window.run(
        """["title", "finding", "tools", "legend", "over", "axis", "scroll", "panel"].map((id) => {
            const {left, right, top, bottom} = document.getElementById(id).getBoundingClientRect();
            return [id, left, right, top, bottom]; })"""
    )
    for (a, left, right, top, bottom), (b, left2, right2, top2, bottom2) in itertools.combinations(boxes, 2):
        overlap = min(right, right2) - max(left, left2) > 1 and min(bottom, bottom2) - max(top, top2) > 1
        assert not overlap, (a, b)
    assert all(right - left > 40 and bottom - top > 15 for _, left, right, top, bottom in boxes)


async def test_ten_thousand_events_are_less_than_5_mb(day, day_file, record_property):
    size = day_file.stat().st_size
    record_property("figures", f"{len(day.events.at):,} events, {len(day.actions.at):,} actions: {size / 1e6:.2f} MB")
    assert len(day.events.at) == 10_000
    assert size < 5_000_000


async def test_ten_thousand_events_are_drawn_frame_by_frame(window, day_file, record_property):
    await window.open(day_file)
    painted = await window.run("timeline.painted")
    took = await window.run(
        f"""(async () => {{
            const frame = () => new Promise(requestAnimationFrame);
            const scrolled = (n) => {{ document.getElementById("scroll").scrollTop = n * 150; }};
            const took = {{zoom: [], pan: [], scroll: [], frames: []}};
            for (const [name, act] of [["zoom", (n) => timeline.zoom(n < {FRAMES} / 2 ? 1 / 1.15 : 1.15)],
                ["pan", (n) => timeline.pan(n % 2 ? 40 : -25)], ["scroll", scrolled]]) {{
                if (name === "pan") timeline.zoom(1 / 4);
                for (let n = 0; n < {FRAMES}; n += 1) {{
                    const begin = performance.now();
                    act(n); timeline.draw();
                    took[name].push(performance.now() - begin);
                    await frame();
                    took.frames.push(performance.now() - begin);
                }}
            }}
            return took;
        }})()"""
    )
    figures = [f"script ran and drew after {painted:.0f} ms"]
    for name, each in took.items():
        times = sorted(each)
        figures.append(f"{name} median {times[len(times) // 2]:.1f} ms, longest {times[-1]:.1f} ms")
    record_property("figures", "; ".join(figures))
    assert [len(each) for each in took.values()] == [FRAMES, FRAMES, FRAMES, 3 * FRAMES]
    assert window.complaints == []
