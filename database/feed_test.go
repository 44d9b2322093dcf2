package database_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/table"
)

func TestParseCursor(t *testing.T) {
	for text, ok := range map[string]bool{
		"0": true, "abc.1": true, "abc.1.-5": true, "abc.0.5.7": true, "abc.0.-9223372036854775808.7": true,
		"": false, "1": false, "abc": false, ".1": false, "abc.-1": false, "abc.01": false, "abc.1.x": false, "abc.1.2.-3": false,
		"abc.1.2.3.4": false, "abc.1.2.0": false, strings.Repeat("a", 41) + ".1": false,
	} {
		t.Run(text, func(t *testing.T) {
			c, got := database.ParseCursor(text)
			if got != ok || ok && c.String() != text {
				t.Errorf("got %v, %v, want %v", c, got, ok)
			}
		})
	}
	// As the pattern in the OpenAPI document allows them, they are cursors of another database.
	for _, text := range []string{"abc.1.-9223372036854775808", "abc.1.9999999999999999999"} {
		t.Run(text, func(t *testing.T) {
			if _, ok := database.ParseCursor(text); !ok {
				t.Error("got no cursor")
			}
		})
	}
}

// TestFeedOfANewTable: the text for a new table does what the migrations of plants do.
func TestFeedOfANewTable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		weeds := &table.Table{Name: "weeds", Noun: "weed", Feed: "weed_feed"}
		columns, catalog := "id bigint PRIMARY KEY NOT NULL", `
			SELECT concat_ws(' ', table_name, column_name, data_type, column_default, is_nullable) FROM information_schema.columns
				WHERE table_schema = current_schema() AND (table_name <> '{rows}' AND (table_name LIKE '{row}%' OR table_name LIKE '{feed}%') OR column_name = 'changed' AND table_name = '{rows}')
			UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND (indexname = '{rows}_changed' OR tablename LIKE '{row}\_%' OR tablename LIKE '{feed}%')
			UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND proname LIKE '{rows}%'
			UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = '{rows}'::regclass AND NOT tgisinternal
			UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('{feed}'::regclass, '{row}_imports'::regclass)
			UNION ALL SELECT concat_ws(' ', attname, attstorage) FROM pg_attribute WHERE attrelid = '{row}_imports'::regclass`
		if db.Dialect.Facts().System == "sqlite" {
			columns, catalog = "id INTEGER PRIMARY KEY", "SELECT sql FROM sqlite_schema WHERE type IN ('table', 'trigger') AND name <> '{rows}' AND (tbl_name LIKE '{row}%' OR tbl_name LIKE '{feed}%')"
		}
		if err := db.Exec("CREATE TABLE weeds (" + columns + ")").Error; err != nil {
			t.Fatal(err)
		}
		dbtest.AddFeed(t, db, weeds)
		plain := strings.NewReplacer("weed_feed", "feed", "weed", "plant")
		of := func(of *table.Table) (all []string) {
			if err := db.Raw(of.FeedSQL(catalog)).Scan(&all).Error; err != nil {
				t.Fatal(err)
			}
			for i, text := range all {
				all[i] = plain.Replace(strings.Join(strings.Fields(comment.ReplaceAllString(text, "")), " "))
			}
			slices.Sort(all)
			return all
		}
		got, want := of(weeds), of(dbtest.Tables[0])
		for _, text := range got {
			if !slices.Contains(want, text) {
				t.Errorf("plants lack %s", text)
			}
		}
		for _, text := range want {
			if !slices.Contains(got, text) {
				t.Errorf("weeds lack %s", text)
			}
		}
		if len(want) < 7 {
			t.Errorf("got %q", want)
		}
	})
}

var comment = regexp.MustCompile(`--.*`)
