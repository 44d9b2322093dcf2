package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// chart draws the rates in c with the most connections as an SVG file: a group of
// bars for each unconditional operation that succeeds, a bar for each contender that
// speaks HTTP and stores plants. Without any of them, it writes no file.
func (r results) chart(c comparison, file string) error {
	const left, bottom, height, barWidth = 60.0, 290.0, 230.0, 22.0 // pixels
	connections := slices.Max(c.connections)
	colors := map[string]string{service: "#2e7d32", plain: "#c8c8c8", tuned: "#989898", direct: "#686868"}
	type bar struct {
		x, rate float64
		color   string
	}
	var bars []bar
	var text, legend strings.Builder
	x, highest := left, 0.0
	for _, o := range c.operations {
		begin := x + barWidth
		for _, name := range append([]string{service}, baselines...) {
			if of := o.by(name, connections); len(r[of]) > 0 && !o.ifMatch && o.status < 400 {
				x = max(x, begin-barWidth) + barWidth
				bars = append(bars, bar{x, r.median(of)[rate], colors[name]})
				highest = max(highest, bars[len(bars)-1].rate)
			}
		}
		if x >= begin {
			x += barWidth
			fmt.Fprintf(&text, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (begin+x)/2, bottom+20, o.method)
		}
	}
	if bars == nil {
		return nil
	}
	for line := 0.0; line <= highest; line += 10_000 {
		y := bottom - line/highest*height
		fmt.Fprintf(&text, `<path d="M%g %gH%g" stroke="#ddd"/><text x="%g" y="%g" text-anchor="end">%g</text>`+"\n", left, y, x+barWidth, left-6, y+4, line)
	}
	for _, b := range bars {
		fmt.Fprintf(&text, `<path d="M%g %gv%.1fh%gV%g" fill="%s"/>`+"\n", b.x, bottom, -b.rate/highest*height, barWidth, bottom, b.color)
	}
	for i, name := range append([]string{service}, baselines...) {
		fmt.Fprintf(&legend, `<rect x="%g" y="%d" width="12" height="12" fill="%s"/><text x="%g" y="%d">%s</text>`+"\n",
			x+2*barWidth, 60+24*i, colors[name], x+2*barWidth+20, 71+24*i, name)
	}
	return os.WriteFile(file, fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g 330" font-family="Liberation Sans,Arial,Helvetica,sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="%g" y="30" font-size="14">%s, %d connections: requests/s (higher is better)</text>
%s%s</svg>
`, x+190, left, c.title, connections, &text, &legend), 0o644)
}
