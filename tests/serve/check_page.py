#!/usr/bin/env python3
"""Drives the page of `inferno serve` in Chromium: send, stream, stop, regenerate, edit, reload, phone width.

usage: check_page.py INFERNO OUT    (needs playwright, and Debian's chromium)

Any message on the console, any request to another host and any failed step is a failure. Screenshots go to OUT.
"""
import pathlib
import shutil
import subprocess
import sys

from playwright.sync_api import expect, sync_playwright

PATIENCE = 120_000  # ms; against hanging, not a measurement


MODEL = pathlib.Path(__file__).parents[2] / "models" / "tiny-books-26m.gguf"


def start(inferno, *arguments):
    server = subprocess.Popen([inferno, "serve", "--port", "0", "--quiet", "--chat-template", "chatml", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = server.stdout.readline()
    return server, line.split(" on ")[1].strip().removesuffix("/v1")


# What the page sends, where the checks can see it.
WATCH = """
const real = window.fetch;
window.fetch = (url, options) => { if (options?.body) window.asked = JSON.parse(options.body); return real(url, options); };
"""


def ask(page, text):
    page.fill("#input", text)
    page.press("#input", "Enter")


def wait_done(page):
    expect(page.locator("#stop")).to_be_hidden(timeout=PATIENCE)


def check_models(page):
    """The page of a server with two models asks the one that is chosen."""
    expect(page.locator("#models")).to_be_visible()
    page.select_option("#models", "second")
    expect(page.locator("#models")).to_have_value("second")
    page.evaluate("settings.max_tokens = 8; save('inferno.settings', settings)")
    ask(page, "The sea was calm")
    wait_done(page)
    expect(page.locator(".turn.assistant .who").last).to_have_text("second")
    page.reload()
    expect(page.locator("#models")).to_have_value("second")


def check(page, out):
    expect(page.locator("#model")).to_contain_text("story")
    page.evaluate("settings.max_tokens = 40; save('inferno.settings', settings)")
    ask(page, "The sea was calm")
    wait_done(page)
    answers = page.locator(".turn.assistant")
    expect(answers).to_have_count(1)
    first = answers.first.locator(".body").inner_text()
    assert first.strip(), "no answer"
    figures = answers.first.locator(".figures").inner_text()
    assert "tokens" in figures and "reused" in figures, figures
    page.screenshot(path=out / "chat.png")

    page.evaluate("settings.max_tokens = 900; save('inferno.settings', settings)")
    ask(page, "and the old man")
    expect(answers).to_have_count(2)
    expect(answers.last.locator(".body")).not_to_be_empty(timeout=PATIENCE)
    page.click("#stop")
    wait_done(page)
    assert "stopped" in answers.last.locator(".figures").inner_text()
    assert page.evaluate("asked.messages.length") == 3
    page.evaluate("settings.max_tokens = 12; save('inferno.settings', settings)")

    answers.last.get_by_role("button", name="Regenerate").click()
    wait_done(page)
    expect(answers).to_have_count(2)
    assert page.evaluate("asked.messages.length") == 3

    page.locator(".turn.user").first.get_by_role("button", name="Edit").click()
    page.fill(".edit", "The night was dark")
    page.get_by_role("button", name="Send again").click()
    wait_done(page)
    expect(answers).to_have_count(1)
    assert page.evaluate("asked.messages[0].content") == "The night was dark"

    page.reload()
    expect(page.locator(".turn")).to_have_count(2)
    page.click("#new")
    expect(page.locator(".turn.user")).to_have_count(0)
    page.locator("#list .open").first.click()
    expect(page.locator(".turn")).to_have_count(2)


def check_markdown(page, out):
    page.evaluate("""() => {
      current.messages.push({role: 'assistant', thinking: 'Let me see.', content: '# Title\\n\\nSome **bold**, *slanted* ' +
        'and `code <b>`.\\n\\n- one\\n- two\\n  - inner\\n\\n```python\\nprint("<script>")\\n```\\n\\n| a | b |\\n|---|---|\\n' +
        '| 1 | 2 |\\n\\n<img src=x onerror=alert(1)> [bad](javascript:alert(1))'});
      show();
    }""")
    body = page.locator(".turn.assistant").last.locator(".body")
    expect(body.locator("h3")).to_have_text("Title")
    expect(body.locator("strong")).to_have_text("bold")
    expect(body.locator("pre code")).to_have_text('print("<script>")')
    expect(body.locator("td")).to_have_count(2)
    expect(body.locator("ul ul li")).to_have_text("inner")
    assert body.locator("img").count() == 0 and body.locator("a").count() == 0, "text became an element"
    assert not body.locator("details").evaluate("d => d.open"), "thinking is folded"
    body.get_by_role("button", name="Copy").click()
    expect(body.get_by_role("button", name="Copied")).to_be_visible()
    page.screenshot(path=out / "markdown.png")


def check_rest(page, out):
    page.click("#theme")
    page.screenshot(path=out / "dark.png")
    page.click("#open-settings")
    page.fill("#s-system", "Be brief.")
    page.fill("#s-temperature", "0.5")
    page.screenshot(path=out / "settings.png")
    page.get_by_role("button", name="Done").click()
    assert page.evaluate("settings.temperature") == "0.5"
    page.click("#tab-state")
    expect(page.locator("#rows tr").first).to_be_visible(timeout=PATIENCE)
    page.screenshot(path=out / "state.png")
    page.press("#tab-state", "ArrowLeft")
    expect(page.locator("#chat")).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 700})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360, f"{wide} pixels on a phone of 360"
    page.click("#menu")
    expect(page.locator("#new")).to_be_visible()
    page.screenshot(path=out / "phone-menu.png")
    page.keyboard.press("Escape")
    page.screenshot(path=out / "phone.png")
    unnamed = page.evaluate("""[...document.querySelectorAll('button, input, textarea, select')].filter((e) => e.checkVisibility() &&
      !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)""")
    assert not unnamed, f"without a name for screen readers: {unnamed}"


def visit(playwright, inferno, arguments, work):
    """Calls work(page) with the page of such a server; returns what it should not have done."""
    server, address = start(inferno, *arguments)
    problems = []
    try:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 760}, color_scheme="light")
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: problems.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: problems.append(f"error: {e}"))
        page.on("request", lambda r: r.url.startswith((address, "data:", "blob:")) or
                problems.append(f"request to {r.url}"))
        page.add_init_script(WATCH)
        page.goto(address + "/")
        work(page)
        browser.close()
    finally:
        server.terminate()
        server.wait()
    return problems


def main():
    inferno, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)

    def one_model(page):
        check(page, out)
        check_markdown(page, out)
        check_rest(page, out)

    def two_models(page):
        check_models(page)
        page.screenshot(path=out / "models.png")

    with sync_playwright() as playwright:
        problems = visit(playwright, inferno, ["--alias", "story"], one_model)
        problems += visit(playwright, inferno, [f"first={MODEL}", f"second={MODEL}"], two_models)
    if problems:
        sys.exit("\n".join(problems))
    print(f"check-page: passed; screenshots are in {out}")


main()
