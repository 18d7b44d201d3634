"""The page: a Gradio app with one HTML component a tab. The behaviour is in static/*.js."""

from __future__ import annotations

import gradio as gr

from edgeapp.ui import STATIC

__all__ = ["TABS", "make_page"]

TABS = ("Live", "File", "Text", "Pictures", "Models", "History")


def make_page() -> gr.Blocks:
    """Make the page. The script of a tab runs when the tab is first opened."""
    page = gr.Blocks(title="EdgeApp", analytics_enabled=False, fill_width=True)
    with page, gr.Tabs(elem_id="ea-tabs", overflow_behavior="wrap"):
        for label in TABS:
            name = label.lower()
            with gr.Tab(label, id=name, elem_id=f"ea-{name}"):
                gr.HTML(
                    html_template=(STATIC / f"{name}.html").read_text("utf-8"),
                    apply_default_css=False,
                    js_on_load=(
                        "Promise.all([import('/edgeapp/static/texts.js'),"
                        f" import('/edgeapp/static/{name}.js')]).then(([texts, tab]) => {{"
                        " texts.translate(element); tab.start(element);"
                        " element.dataset.ready = 'yes' })"
                    ),
                    elem_classes=["ea-sheet"],
                )
    return page
