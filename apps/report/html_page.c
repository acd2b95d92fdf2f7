/* The head, the style and escaping. */
#include "report/html_page.h"

static const char style[] =
    ":root{color-scheme:light dark;--back:#fcfcfa;--raised:#fff;--text:#1c1c1a;--soft:#5f5f59;--line:#e2e2dc;"
    "--wash:#f3f2ee;--good:#1d6f4f;--bad:#a8391f;--warn-wash:#fbf0dc;--shade:#0003;"
    "--s0:#0b62a4;--s1:#b4480f;--s2:#00795a;--s3:#8f3a86;--s4:#8a6a00;--s5:#4b5b8c;--s6:#a02c4e;--s7:#55554f}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--back:#161615;--raised:#1e1e1c;--text:#eceae4;--soft:#a8a79f;"
    "--line:#363632;--wash:#232321;--good:#7fd0ab;--bad:#f39b81;--warn-wash:#362b17;--shade:#0009;"
    "--s0:#78b5f5;--s1:#f5a26b;--s2:#56cfa3;--s3:#e0a0da;--s4:#e6c653;--s5:#a9b9ec;--s6:#f593ad;--s7:#bcbbb3}}\n"
    ".s0{--colour:var(--s0)}.s1{--colour:var(--s1)}.s2{--colour:var(--s2)}.s3{--colour:var(--s3)}"
    ".s4{--colour:var(--s4)}.s5{--colour:var(--s5)}.s6{--colour:var(--s6)}.s7{--colour:var(--s7)}\n"
    ".c0{--piece:#6b9fdc}.c1{--piece:#e8a33d}.c2{--piece:#3fb391}.c3{--piece:#b592d6}.c4{--piece:#a9aca3}"
    ".c5{--piece:#cbb083}.c6{--piece:#e08aa8}.c7{--piece:#86cbe8}.c8{--piece:#c3c24f}.c9{--piece:#e27d5c}"
    ".c10{--piece:#5fb0b8}.c11{--piece:#98a1b3}.c12{--piece:#c9c9c2}.c13{--piece:#9bb07f}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:1.2rem max(1rem,env(safe-area-inset-left)) 3rem;max-width:76rem;background:var(--back);"
    "color:var(--text);font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif;"
    "-webkit-text-size-adjust:100%;overflow-wrap:break-word}\n"
    "h1{font-size:1.5rem;line-height:1.25;letter-spacing:-.015em;margin:.2rem 0 .3rem}\n"
    "h2{font-size:1.15rem;letter-spacing:-.01em;margin:0 0 .3rem}\n"
    "section{margin-top:2.4rem;padding-top:1.1rem;border-top:1px solid var(--line)}\n"
    "h3{font-size:1rem;margin:1.2rem 0 .3rem}\n"
    "p{margin:.4rem 0;max-width:44rem}\n"
    "ul{margin:.4rem 0;padding-left:1.2rem;max-width:44rem}li{margin:.35rem 0}\n"
    ".soft,small{color:var(--soft)}small{font-size:.8125rem}\n"
    ".note{background:var(--warn-wash);border-left:3px solid var(--s1);border-radius:0 6px 6px 0;padding:.5rem .8rem}\n"
    "figure{margin:0;break-inside:avoid}\n"
    "figcaption{font-size:.9375rem;font-weight:600;margin:0 0 .35rem}\n"
    ".plots{display:grid;gap:1.4rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));"
    "margin:1rem 0}\n"
    ".plots figure{max-width:30rem;min-width:0}.plots.large figure{max-width:36rem}\n"
    ".plots.large{grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr))}\n"
    ".tables{display:flex;flex-wrap:wrap;gap:0 2.6rem}.tables>div{min-width:0;max-width:100%}\n"
    "svg{display:block}\n"
    ".xy{width:100%;height:auto}\n"
    "svg text{font:13px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif;fill:var(--soft)}\n"
    ".grid{stroke:var(--line);stroke-width:1}\n"
    ".roof{fill:none;stroke:var(--soft);stroke-width:1.5}\n"
    ".lead{stroke:var(--colour);stroke-width:1;opacity:.5}\n"
    ".here{fill:none;stroke:var(--text);stroke-width:1.5}\n"
    ".path{fill:none;stroke:var(--colour);stroke-width:1.75;stroke-linejoin:round;opacity:.6}\n"
    ".mark{fill:var(--colour);stroke:var(--back);stroke-width:1.5}\n"
    "svg text.label{fill:var(--colour,var(--text));font-weight:600;paint-order:stroke;stroke:var(--back);"
    "stroke-width:3px}\n"
    ".rows{margin:1rem 0;display:grid;grid-template-columns:minmax(0,max-content) minmax(0,1fr) max-content;"
    "grid-auto-flow:row dense;gap:.35rem .8rem;align-items:center}\n"
    ".rows figcaption{grid-column:1/-1;margin:0}\n"
    ".rows .name{grid-column:1;max-width:22rem;line-height:1.3}\n"
    ".rows .sum{grid-column:3;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    ".rows .bar{grid-column:2}\n"
    ".bar{width:100%;height:26px;overflow:visible}\n"
    ".bar .base{fill:var(--wash)}\n"
    ".piece{fill:var(--piece);stroke:var(--back);stroke-width:1}\n"
    "svg text.in{fill:#161616;font-size:12px}\n"
    ".wide{display:none}\n"
    "@media(min-width:52rem){.wide{display:inline}.large svg text{font-size:11px}}\n"
    ".legend{display:flex;gap:.15rem 1.1rem;flex-wrap:wrap;margin:.5rem 0;padding:0;max-width:none;list-style:none;"
    "font-size:.9375rem}.legend li{margin:0;min-width:0}\n"
    ".legend svg{display:inline-block;width:.95em;height:.95em;vertical-align:-.1em;margin-right:.15em}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(10.2rem,calc(50% - "
    ".4rem)),1fr));gap:.7rem;margin:1rem 0;padding:0;"
    "max-width:none;list-style:none}\n"
    ".cards li{margin:0;background:var(--raised);border:1px solid var(--line);border-radius:10px;padding:.6rem .8rem;"
    "break-inside:avoid}\n"
    ".cards "
    "b{display:block;font-size:1.35rem;line-height:1.3;letter-spacing:-.01em;font-variant-numeric:tabular-nums}\n"
    ".cards span{display:block;font-size:.8125rem;color:var(--soft);line-height:1.35}\n"
    /* Shadows show that a table continues. */
    ".scroll{overflow-x:auto;margin:.7rem 0;background:"
    "linear-gradient(90deg,var(--back) 40%,transparent) 0/2rem 100% no-repeat local,"
    "linear-gradient(-90deg,var(--back) 40%,transparent) 100%/2rem 100% no-repeat local,"
    "linear-gradient(90deg,var(--shade),transparent) 0/.7rem 100% no-repeat,"
    "linear-gradient(-90deg,var(--shade),transparent) 100%/.7rem 100% no-repeat}\n"
    "table{border-collapse:collapse;font-size:.9375rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:baseline;"
    "white-space:nowrap}\n"
    "th:first-child,td:first-child{padding-left:0}\n"
    "th{color:var(--soft);font-weight:600}\n"
    "td.t,th.t{text-align:left}\n"
    "td.w{white-space:normal;min-width:12rem;max-width:26rem}\n"
    "td small{margin-left:.4em}\n"
    "@media(max-width:40rem){.axis text.near{display:none}.rows{grid-template-columns:minmax(0,1fr) "
    "max-content;gap:.15rem .8rem}"
    ".rows .name{max-width:none}.rows .sum{grid-column:2}.rows .bar{grid-column:1/-1;margin-bottom:.45rem}"
    "table{font-size:.875rem}th,td{padding:.25rem .5rem}}\n"
    ".good{color:var(--good)}.bad{color:var(--bad)}\n"
    "footer{margin-top:2.4rem;padding-top:.8rem;border-top:1px solid var(--line);color:var(--soft);"
    "font-size:.875rem}\n"
    "@media "
    "print{:root{color-scheme:light;--back:#fff}@page{margin:14mm}body{padding:0;max-width:none;font-size:10.5pt;"
    "-webkit-print-color-adjust:exact;print-color-adjust:exact}section{margin-top:1.2rem;padding-top:.7rem}"
    "h2,h3,figcaption,.legend{break-after:avoid}.scroll{overflow:visible;background:none}tr,li,.rows{break-inside:"
    "avoid}"
    "table{font-size:8.5pt}small{font-size:.85em}th,td{padding:.2rem .45rem}td.t{white-space:normal}"
    ".plots{gap:.8rem;grid-template-columns:repeat(2,minmax(0,1fr))}}\n";

void spry_page_escape(spry_buffer *out, const char *text)
{
    for (; *text; text++) {
        const char c = *text;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            spry_buffer_format(out, "&#%d;", c);
        else
            spry_buffer_append(out, (unsigned char)c < ' ' ? "?" : &c, 1);
    }
}

void spry_page_begin(spry_buffer *out, const char *title)
{
    spry_buffer_text(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
                          "content=\"width=device-width, initial-scale=1\"/>\n<title>");
    spry_page_escape(out, title);
    spry_buffer_format(out, "</title>\n<style>\n%s</style></head>\n<body>\n", style);
}

void spry_page_end(spry_buffer *out)
{
    spry_buffer_text(out, "</body></html>\n");
}
