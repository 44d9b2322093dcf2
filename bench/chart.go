package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart draws the rates in c with the most connections as an SVG file: a group of
// bars for each unconditional operation that succeeds, a bar for each contender that
// speaks HTTP and stores plants. Without any of them, it writes no file.
func (r results) chart(c comparison, file string) error {
	const barWidth, margin = 16, 10 // points
	connections := slices.Max(c.connections)
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, %d connections (higher is better)", c.title, connections)
	p.Title.Padding = margin
	p.Y.Label.Text = units[rate].name
	p.Y.Min = 0
	p.BackgroundColor = nil // the white below also covers the margin and the legend
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding = margin / 2

	var methods, listed []string
	for _, o := range c.operations {
		if o.ifMatch || o.status >= 400 {
			continue
		}
		var bars []*plotter.BarChart
		for i, name := range c.contenders {
			of := o.by(name, connections)
			if name == noStore || name == pgbench || len(r[of]) == 0 {
				continue
			}
			bar := &plotter.BarChart{
				Values: plotter.Values{r.median(of)[rate]}, XMin: float64(len(methods)),
				Width: barWidth, Color: color.Gray{Y: 0xf8 - 0x30*uint8(i)}, // the next one is darker
			}
			if name == service {
				bar.Color = color.RGBA{R: 0x2e, G: 0x7d, B: 0x32, A: 0xff} // green
			}
			if !slices.Contains(listed, name) {
				listed = append(listed, name)
				legend.Add(name, bar)
			}
			bars = append(bars, bar)
		}
		for i, bar := range bars {
			bar.Offset = barWidth * (vg.Length(i) - vg.Length(len(bars)-1)/2) // the group is centered
			p.Add(bar)
		}
		if len(bars) > 0 {
			methods = append(methods, o.method)
		}
	}
	if len(methods) == 0 {
		return nil
	}
	p.NominalX(methods...)
	p.X.Min, p.X.Max = -0.5, float64(len(methods))-0.5

	svg := vgsvg.New(8.5*vg.Inch, 3.5*vg.Inch)
	area := draw.New(svg)
	area.SetColor(color.White)
	area.Fill(area.Path())
	area = draw.Crop(area, margin, -margin, margin, -margin)
	width := 1.25 * legend.Rectangle(area).Size().X // viewers may have a wider font
	p.Draw(draw.Crop(area, 0, -width-margin, 0, 0))
	legend.Draw(draw.Crop(area, area.Size().X-width, 0, 0, 0))

	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return err
	}
	// Most machines have one of these fonts; the first three have the same widths.
	const font = "font-family:Liberation Sans"
	return os.WriteFile(file, bytes.ReplaceAll(text.Bytes(), []byte(font), []byte(font+",Arial,Helvetica,sans-serif")), 0o644)
}
