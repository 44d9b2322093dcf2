package main

import (
	"bytes"
	"fmt"
	"slices"
)

// chart draws the rates in c with the most connections as an SVG file: a group of bars for each
// successful operation, a bar for each contender.
func (r results) chart(c comparison) []byte {
	const bottom, barWidth = 290.0, 30.0
	const scale = 230.0 / 50_000                        // height of a request per second
	colors := []string{"#2e7d32", "#989898", "#686868"} // of the contenders
	connections := slices.Max(c.connections)
	var bars bytes.Buffer
	x := 0.0
	for _, o := range c.operations {
		if o.status >= 400 {
			continue
		}
		x += barWidth
		fmt.Fprintf(&bars, `<text x="%g" y="%g">%s</text>`+"\n", x, bottom+20, o.method)
		for i, name := range c.contenders {
			perSecond, _, _ := r.ratio(rate, o.by(name, connections), cell{})
			top := bottom - perSecond*scale
			fmt.Fprintf(&bars, `<path d="M%g %gV%.1fh%gV%g" fill="%s"/><text x="%g" y="%.1f">%.0fk</text>`+"\n",
				x, bottom, top, barWidth, bottom, colors[i], x+4, top-4, perSecond/1000)
			x += barWidth
		}
	}
	for i, name := range c.contenders {
		fmt.Fprintf(&bars, `<rect x="%g" y="%d" width="12" height="12" fill="%s"/><text x="%g" y="%d">%s</text>`+"\n",
			x+barWidth, 60+24*i, colors[i], x+barWidth+20, 71+24*i, name)
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g 330" font-family="Liberation Sans,Arial,Helvetica,sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="%g" y="30" font-size="14">%s, %d connections: requests/s (higher is better)</text>
%s</svg>
`, x+180, barWidth, c.title, connections, &bars)
}
