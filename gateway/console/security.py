"""What a browser is told about the console's pages, on every answer."""

from collections.abc import Mapping

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types console"
)
"""Nothing inline, nothing from elsewhere, no frame around it. A script makes HTML only by the policy `console` of static/console.js."""

SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with no-referrer a form of ours says Origin: null
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

PRIVATE: Mapping[str, str] = {**SECURITY, "Cache-Control": "no-store"}
"""Of pages."""

LASTING: Mapping[str, str] = {**SECURITY, "Cache-Control": "public, max-age=31536000, immutable"}
"""Of files whose address holds a digest of them."""
