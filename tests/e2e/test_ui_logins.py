"""The page with logins and HTTPS: a login is required, and histories are private."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk, in_history, ready, serving


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed (certificate, key)."""
    openssl = shutil.which("openssl")
    assert openssl, "needs openssl"
    made = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-out", made[0], "-keyout", made[1]],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made


def arrive(desk: Desk, **options: Any) -> Any:
    """The login page, as a new browser gets it."""
    desk.context = desk.browser.new_context(ignore_https_errors=True, **options)
    desk.context.set_default_timeout(300_000)
    desk.context.on("request", lambda request: desk.requests.append(request.url))
    page = desk.context.new_page()
    page.goto(desk.url)
    page.evaluate(AXE)
    assert not violations(page)
    return page


def log_in(page: Any, user: str, password: str) -> None:
    page.fill("[name=user]", user)
    page.fill("[name=password]", password)
    page.click("button")


def test_the_login_page_in_other_languages(
    browser: Any, page_environment: dict[str, str], tmp_path: Path
) -> None:
    with serving(page_environment, "--auth", "anna:one", log=tmp_path / "log.txt") as server:
        desk = Desk(browser, server.url, expected=["403", "404", "410"])
        page = arrive(desk, locale="de-AT")
        page.wait_for_selector("button:has-text('Anmelden')")
        assert page.evaluate("document.documentElement.lang") == "de"
        log_in(page, "anna", "wrong")
        page.wait_for_selector("[role=alert]:has-text('Falscher Name oder falsches Passwort')")
        # As chosen on the page earlier, in this browser.
        page.evaluate("localStorage.setItem('ea-language', 'fr')")
        page.goto(f"{server.url}enter/unknown")
        page.wait_for_selector("[role=alert]:has-text('Ce lien a déjà servi')")
        page.goto(f"{server.url}view/unknown")
        page.wait_for_selector("p:has-text('Ces sous-titres sont terminés')")
        page.goto(server.url)
        log_in(page, "anna", "one")
        ready(page, "live")
        invited = page.evaluate(
            "import('/edgeapp/static/session.js').then(({ ask }) => ask({ type: 'invite' }))"
        )
        page.goto(invited["url"])
        page.wait_for_selector("button:has-text('Ouvrir EdgeApp')")
        page.click("button")
        ready(page, "live")
        desk.close()


def test_logins(browser: Any, page_environment: dict[str, str], tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("anna:one two\nben:three\n", "utf-8")
    cert, key = certificate(tmp_path)
    environment = page_environment | {"EDGEAPP_HISTORY": str(tmp_path / "history.db")}
    options = ["--auth", users, "--ssl-certfile", cert, "--ssl-keyfile", key]
    with serving(environment, *map(str, options), log=tmp_path / "log.txt") as server:
        assert server.url.startswith("https://")
        anna, ben = Desk(browser, server.url), Desk(browser, server.url)
        page, other = arrive(anna), arrive(ben)
        log_in(page, "anna", "wrong")
        page.wait_for_selector("text=Wrong name or password")
        log_in(page, "anna", "one two")
        ready(page, "live")
        page.click("role=tab[name=Text]")
        ready(page, "text")
        page.fill(".ea-source", "Good morning.")
        page.wait_for_selector(".ea-result:has-text('Morgen')")
        in_history(page, "Good morning")  # when it was not changed for a while
        page.click("role=tab[name=History]")
        page.wait_for_selector(".ea-entry:has-text('Good morning')")
        log_in(other, "ben", "three")
        ready(other, "live")
        other.click("role=tab[name=History]")
        other.wait_for_selector(".ea-none:has-text('Nothing here yet')")
        beside = ben.context.new_page()
        beside.goto(server.url)
        ready(beside, "live")
        other.click("text=Log out")
        other.wait_for_selector("[name=password]")
        # His other tab shows the login page as well.
        beside.wait_for_selector("[name=password]")
        other.goto(desk_url := server.url)
        assert other.url == f"{desk_url}login"
        for desk in (anna, ben):
            desk.close()
