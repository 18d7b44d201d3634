"""Theme, style sheet and HTML head of the page: light and dark colours, fonts."""

from __future__ import annotations

import gradio as gr
from gradio.themes import Base, colors, sizes

from edgeapp.ui import STATIC

__all__ = ["head", "style", "theme"]

# Wheels have a font; a clone has it after assets/packaging/font.py, and else uses the system's.
_FONT = "fonts/inter-latin-wght-normal.woff2"
_FONTS = [
    "Inter Variable",
    "system-ui",
    "-apple-system",
    "Segoe UI",
    "Roboto",
    "Noto Sans",
    "sans-serif",
]
_MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]


def theme() -> gr.themes.Base:
    """A Gradio theme with the colours of static/tokens.css."""
    base = Base(
        primary_hue=colors.teal,
        neutral_hue=colors.stone,
        radius_size=sizes.radius_lg,
        text_size=sizes.text_md,
        font=_FONTS,
        font_mono=_MONO,
    )
    return base.set(
        body_background_fill="var(--ea-ground)",
        body_background_fill_dark="var(--ea-ground)",
        body_text_color="var(--ea-ink)",
        body_text_color_dark="var(--ea-ink)",
        body_text_color_subdued="var(--ea-quiet)",
        body_text_color_subdued_dark="var(--ea-quiet)",
        background_fill_primary="var(--ea-sheet)",
        background_fill_primary_dark="var(--ea-sheet)",
        background_fill_secondary="var(--ea-ground)",
        background_fill_secondary_dark="var(--ea-ground)",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_border_width="0px",
        block_label_text_color="var(--ea-quiet)",
        block_label_text_color_dark="var(--ea-quiet)",
        block_title_text_color="var(--ea-quiet)",
        block_title_text_color_dark="var(--ea-quiet)",
        border_color_primary="var(--ea-rule)",
        border_color_primary_dark="var(--ea-rule)",
        border_color_accent="var(--ea-accent)",
        border_color_accent_dark="var(--ea-accent)",
        color_accent="var(--ea-accent)",
        color_accent_soft="var(--ea-soft)",
        color_accent_soft_dark="var(--ea-soft)",
        input_background_fill="var(--ea-sheet)",
        input_background_fill_dark="var(--ea-sheet)",
        input_border_color="var(--ea-rule)",
        input_border_color_dark="var(--ea-rule)",
        input_border_color_focus="var(--ea-accent)",
        input_border_color_focus_dark="var(--ea-accent)",
        input_placeholder_color="var(--ea-quiet)",
        input_placeholder_color_dark="var(--ea-quiet)",
        button_primary_background_fill="var(--ea-accent)",
        button_primary_background_fill_dark="var(--ea-accent)",
        button_primary_text_color="var(--ea-on-accent)",
        button_primary_text_color_dark="var(--ea-on-accent)",
        button_secondary_background_fill="var(--ea-sheet)",
        button_secondary_background_fill_dark="var(--ea-sheet)",
        button_secondary_text_color="var(--ea-ink)",
        button_secondary_text_color_dark="var(--ea-ink)",
    )


def style() -> str:
    """The page's own style sheet; Gradio inserts it before its own rules."""
    names = "tokens frame api-view controls live share big file editor".split()
    names += "text pictures models history".split()
    return "\n".join((STATIC / f"{name}.css").read_text("utf-8") for name in names)


def head() -> str:
    """HTML for the page's head: theme colours, referrer policy, and the script of all tabs."""
    font = (
        '<link rel="preload" as="font" type="font/woff2" crossorigin'
        f' href="/edgeapp/static/{_FONT}">'
        '<link rel="stylesheet" href="/edgeapp/static/fonts/fonts.css">'
    )
    return (
        (font if (STATIC / _FONT).is_file() else "")
        + '<meta name="theme-color" content="#f7f5f1" media="(prefers-color-scheme: light)">'
        '<meta name="theme-color" content="#141412" media="(prefers-color-scheme: dark)">'
        '<meta name="referrer" content="same-origin">'
        '<script src="/edgeapp/static/head.js"></script>'
        '<script type="module" src="/edgeapp/static/frame.js"></script>'
    )
