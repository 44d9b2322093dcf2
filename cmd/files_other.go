//go:build !unix

package cmd

import "math"

// maxFiles returns how many files the process may open: there is no such limit.
func maxFiles() int { return math.MaxInt }
