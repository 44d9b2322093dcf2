package main

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
)

// matches returns the condition that a column, {}, matches a regular expression. SQLite has only GLOB,
// which cannot say everything: the condition then accepts more.
func (k kind) matches(pattern string) string {
	if k == onPostgres {
		return "{} ~ " + quoted(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "true" // the package models has compiled it
	}
	forms := formsOf(parsed.Simplify())
	if !slices.ContainsFunc(forms, func(f form) bool { return !f.fixed }) {
		texts := make([]string, len(forms))
		for i, f := range forms {
			texts[i] = quoted(f.text)
		}
		return "{} IN (" + strings.Join(texts, ", ") + ")"
	}
	conditions := make([]string, len(forms))
	for i, f := range forms {
		conditions[i] = "{} GLOB " + quoted(f.glob)
	}
	condition := strings.Join(conditions, " OR ")
	if strings.Contains(condition, "*") {
		if set := characters(parsed); set != "" {
			condition = "(" + condition + ") AND {} NOT GLOB " + quoted("*[^"+set+"]*")
		}
	}
	return condition
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// form is a form of a text: a pattern of GLOB, and the text if that is the only text with this form.
type form struct {
	glob, text string
	fixed      bool
}

// maxForms is how many forms a condition lists, at most.
const maxForms = 32

var anything = []form{{glob: "*"}}

// formsOf returns forms that together match what a regular expression matches, or more.
func formsOf(re *syntax.Regexp) []form {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return []form{{fixed: true}}
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return anything
		}
		var glob strings.Builder
		for _, r := range re.Rune {
			glob.WriteString(globOf([]rune{r, r}))
		}
		return []form{{glob.String(), string(re.Rune), true}}
	case syntax.OpCharClass:
		if len(re.Rune) == 2 && re.Rune[0] == re.Rune[1] {
			return []form{{globOf(re.Rune), string(re.Rune[:1]), true}}
		}
		return []form{{glob: globOf(re.Rune)}}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []form{{glob: "?"}}
	case syntax.OpCapture:
		return formsOf(re.Sub[0])
	case syntax.OpQuest:
		return limited(append([]form{{fixed: true}}, formsOf(re.Sub[0])...))
	case syntax.OpPlus:
		return product(formsOf(re.Sub[0]), anything)
	case syntax.OpConcat:
		all := []form{{fixed: true}}
		for _, part := range re.Sub {
			all = product(all, formsOf(part))
		}
		return all
	case syntax.OpAlternate:
		var all []form
		for _, part := range re.Sub {
			all = append(all, formsOf(part)...)
		}
		return limited(all)
	}
	return anything
}

// product returns each of a followed by each of b.
func product(a, b []form) (all []form) {
	if len(a)*len(b) > maxForms {
		b = anything
	}
	for _, first := range a {
		for _, second := range b {
			all = append(all, form{strings.ReplaceAll(first.glob+second.glob, "**", "*"), first.text + second.text, first.fixed && second.fixed})
		}
	}
	return limited(all)
}

// limited returns forms, each once, unless they are many.
func limited(forms []form) []form {
	var all []form
	for _, f := range forms {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	if len(all) > maxForms {
		return anything
	}
	return slices.DeleteFunc(slices.Clone(all), func(f form) bool { // what another form includes
		return slices.ContainsFunc(all, func(other form) bool {
			start, open := strings.CutSuffix(other.glob, "*")
			return open && other.glob != f.glob && strings.HasPrefix(f.glob, start)
		})
	})
}

// globOf returns the pattern of a character in ranges, which are pairs.
func globOf(ranges []rune) string {
	set := setOf(ranges)
	switch {
	case set == "":
		return "?"
	case len(ranges) == 2 && ranges[0] == ranges[1] && !strings.ContainsAny(set, "*?[]"):
		return set
	}
	return "[" + set + "]"
}

// setOf returns ranges as in the brackets of GLOB, or nothing if GLOB cannot express them. There, ], ^ and - mean
// something else in some places: they are not the ends of a range.
func setOf(ranges []rune) string {
	var set strings.Builder
	bracket, caret, dash := "", "", ""
	alone := func(r rune) bool {
		switch r {
		case ']':
			bracket = "]"
		case '^':
			caret = "^"
		case '-':
			dash = "-"
		default:
			return false
		}
		return true
	}
	for i := 0; i < len(ranges); i += 2 {
		from, to := ranges[i], ranges[i+1]
		if from == 0 || len(ranges) > 40 {
			return ""
		}
		for from <= to && alone(from) {
			from++
		}
		for from <= to && alone(to) {
			to--
		}
		switch {
		case from == to:
			set.WriteRune(from)
		case from < to:
			fmt.Fprintf(&set, "%c-%c", from, to)
		}
	}
	if bracket+set.String() == "" {
		return dash + caret
	}
	return bracket + set.String() + caret + dash
}

// characters returns the characters of all texts that match re, as in the brackets of GLOB, or nothing if
// they are too many.
func characters(re *syntax.Regexp) string {
	var ranges []rune
	var add func(re *syntax.Regexp) bool
	add = func(re *syntax.Regexp) bool {
		switch re.Op {
		case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
			return false
		case syntax.OpLiteral:
			if re.Flags&syntax.FoldCase != 0 {
				return false
			}
			for _, r := range re.Rune {
				ranges = append(ranges, r, r)
			}
		case syntax.OpCharClass:
			ranges = append(ranges, re.Rune...)
		}
		return !slices.ContainsFunc(re.Sub, func(part *syntax.Regexp) bool { return !add(part) })
	}
	if !add(re) {
		return ""
	}
	return setOf(ranges)
}
