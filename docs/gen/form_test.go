package main

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// TestMatchesOnSQLite: the condition accepts each character that the regular expression accepts.
func TestMatchesOnSQLite(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, class := range []string{
		"[+0-9 ./-]", `[\x21\x23-\x5b\x5d-\x7e]`, `[\]^-]`, "[-^]", "[a^-]", "[A-]]", `[\^-~]`, "[+--]", "[*?[]", "[a-z]", "-", `\]`, `\^`,
	} {
		for _, pattern := range []string{"^" + class + "$", "^" + class + "+$"} {
			t.Run(pattern, func(t *testing.T) {
				rule, condition := regexp.MustCompile(pattern), onSQLite.matches(pattern)
				for r := ' '; r <= '~'; r++ {
					var accepts bool
					text := string(r)
					if err := db.QueryRow("SELECT " + strings.ReplaceAll(condition, "{}", quoted(text))).Scan(&accepts); err != nil {
						t.Fatalf("%s: %v", condition, err)
					}
					if accepts != rule.MatchString(text) {
						t.Errorf("%s of %q is %v", condition, text, accepts)
					}
				}
			})
		}
	}
}
