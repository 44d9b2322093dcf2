//go:build recipe

// Package recipe follows the steps of docs/extend.md in a copy of the repository.
package recipe

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// copyRepository copies what the program and docs/gen need to a new folder.
func copyRepository(t *testing.T) string {
	t.Helper()
	const root = "../.."
	folder := t.TempDir()
	kinds := []string{".go", ".mod", ".sum", ".sql", ".json", ".yaml", ".md", ".css", ".js", ".tmpl"}
	service.Must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"data", "clients", "node_modules"}, name)):
			return fs.SkipDir
		case entry.IsDir():
			relative, err := filepath.Rel(root, path)
			service.Must(t, err)
			return os.MkdirAll(filepath.Join(folder, relative), 0o755)
		case !slices.Contains(kinds, filepath.Ext(name)):
			return nil
		}
		relative, err := filepath.Rel(root, path)
		service.Must(t, err)
		text, err := os.ReadFile(path)
		service.Must(t, err)
		return os.WriteFile(filepath.Join(folder, relative), text, 0o644)
	}))
	return folder
}

// A block is a block of code in docs/extend.md.
type block struct{ language, text string }

// sectionOf returns the blocks of a section of docs/extend.md, and the number of its other lines.
func sectionOf(t *testing.T, title string) (blocks []block, prose int) {
	t.Helper()
	page, err := os.ReadFile("../../docs/extend.md")
	service.Must(t, err)
	_, section, found := strings.Cut(string(page), "\n## "+title+"\n")
	if !found {
		t.Fatalf("docs/extend.md has no section %s", title)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for i, part := range strings.Split(section, "```") {
		if i%2 == 0 {
			for line := range strings.Lines(part) {
				if strings.TrimSpace(line) != "" {
					prose++
				}
			}
			continue
		}
		language, text, _ := strings.Cut(part, "\n")
		blocks = append(blocks, block{language, text})
	}
	return blocks, prose
}

// follow does what a section of docs/extend.md says, in folder. It returns how many lines of code are new, without
// comments and empty lines, and in how many files.
func follow(t *testing.T, folder, title string) (lines, files int) {
	t.Helper()
	changed := make(map[string]bool)
	count := func(name, code string) {
		changed[name] = true
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	blocks, prose := sectionOf(t, title)
	if prose > 25 {
		t.Errorf("the section %s has %d lines besides its code, want at most 25", title, prose)
	}
	for _, b := range blocks {
		switch b.language {
		case "go":
			head, code, _ := strings.Cut(b.text, "\n")
			name := strings.TrimPrefix(head, "// ")
			if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
				t.Fatalf("%s exists", name)
			}
			service.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(code), 0o644))
			count(name, code)
		case "diff":
			for _, part := range strings.Split("\n"+b.text, "\n--- ")[1:] {
				name, hunks, _ := strings.Cut(part, "\n")
				for hunk := range strings.SplitSeq(hunks, "@@\n") {
					count(name, change(t, filepath.Join(folder, name), hunk))
				}
			}
		case "sh":
			for line := range strings.Lines(b.text) {
				if strings.HasPrefix(line, "go run ") {
					run(t, folder, strings.TrimSpace(line))
				}
			}
		}
	}
	return lines, len(changed)
}

// change changes the file at path as a hunk of a diff says, and returns its new lines.
func change(t *testing.T, path, hunk string) string {
	t.Helper()
	var before, after, news strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(hunk, "\n") + "\n") {
		sign, rest := line[:1], line[1:]
		if sign != "+" {
			before.WriteString(rest)
		}
		if sign != "-" {
			after.WriteString(rest)
		}
		if sign == "+" {
			news.WriteString(rest)
		}
	}
	text, err := os.ReadFile(path)
	service.Must(t, err)
	form := regexp.MustCompile(blanks.ReplaceAllLiteralString(regexp.QuoteMeta(before.String()), `[ \t]+`)) // gofmt aligns fields
	if found := form.FindAllIndex(text, -1); len(found) != 1 {
		t.Fatalf("%s has %d times the lines\n%s", path, len(found), before.String())
	}
	service.Must(t, os.WriteFile(path, form.ReplaceAllLiteral(text, []byte(after.String())), 0o644))
	return news.String()
}

var blanks = regexp.MustCompile(`[ \t]+`)

// run runs a command in folder.
func run(t *testing.T, folder, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = folder
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
}

// TestRecipe follows docs/extend.md, and uses the result on each kind of database.
func TestRecipe(t *testing.T) {
	folder := copyRepository(t)
	for _, section := range []struct {
		title        string
		lines, files int // at most
	}{{"Add a resource", 60, 4}, {"Add a field", 3, 2}, {"Add an operation", 40, 6}} {
		lines, files := follow(t, folder, section.title)
		t.Logf("%s: %d lines of code in %d files", section.title, lines, files)
		if lines > section.lines || files > section.files {
			t.Errorf("%s: got %d lines of code in %d files, want at most %d in %d", section.title, lines, files, section.lines, section.files)
		}
	}
	program := filepath.Join(folder, "plantstore")
	run(t, folder, "go run -tags nomsgpack ./docs/gen && go build -tags nomsgpack -o "+program+" .")
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.StartProgram(t, program, "DATABASE_URL="+url)
		t.Run("suppliers", func(t *testing.T) { testSuppliers(t, s, program) })
		t.Run("plants of a supplier", func(t *testing.T) { testReferences(t, s) })
		t.Run("an operation", func(t *testing.T) { testWater(t, s, url) })
		t.Run("the document", func(t *testing.T) { testDocument(t, s) })
	})
}

// lorenz is the content of a supplier, as in docs/extend.md.
const lorenz = `"name":"Baumschule Lorenz","country":"NL","rating":4,"active":true,"price":"12.5","since":"2026-11-27",` +
	`"status":"active","website":"https://example.org","notes":"Delivers on Mondays.\nAnd on Fridays."`

func testSuppliers(t *testing.T, s *service.Service, program string) {
	create := func(t *testing.T, id int, content string) service.Response {
		t.Helper()
		return s.Call(t, "POST", "/suppliers", fmt.Sprintf(`{"id":%d,%s}`, id, content))
	}
	stored := func(id int, content string) string { return fmt.Sprintf(`{"id":%d,%s}`, id, content) }
	t.Run("create and get", func(t *testing.T) {
		created := create(t, 1, lorenz)
		created.CheckStored(t, stored(1, lorenz))
		created.CheckHeader(t, "Location", "/suppliers/1")
		got := s.Call(t, "GET", "/suppliers/1", "")
		got.CheckStored(t, stored(1, lorenz))
		s.Call(t, "GET", "/suppliers/1", "", "If-None-Match", got.ETag()).CheckEmpty(t, 304)
		create(t, 1, lorenz).CheckError(t, 40902, "supplier 1")
		create(t, 1, strings.Replace(lorenz, "Lorenz", "Bruns", 1)).CheckError(t, 40901, "supplier 1")
	})
	t.Run("replace and change", func(t *testing.T) {
		const least = `"name":"Bruns","country":"DE","rating":5,"active":false,"status":"new"`
		s.Call(t, "PUT", "/suppliers/2", "{"+least+"}").CheckStored(t, stored(2, least))
		got := s.Call(t, "GET", "/suppliers/2", "")
		s.Call(t, "PUT", "/suppliers/2", got.Body, "If-Match", got.ETag()).CheckStored(t, stored(2, least)) // as it was read
		s.Call(t, "PUT", "/suppliers/2", got.Body, "If-Match", got.ETag()).CheckError(t, 41201)
		s.Call(t, "PATCH", "/suppliers/2", `{"price":"7","notes":"x"}`).CheckStored(t, stored(2, strings.Replace(least, `"status"`, `"price":"7","status"`, 1)+`,"notes":"x"`))
		s.Call(t, "PATCH", "/suppliers/2", `{"price":null,"notes":null}`).CheckStored(t, stored(2, least))
	})
	t.Run("rules", func(t *testing.T) {
		for _, wrong := range []struct{ field, value string }{
			{"name", `" "`},
			{"country", `"nl"`},
			{"rating", "6"},
			{"price", `"1.234"`},
			{"since", `"2026-02-30"`},
			{"status", `"old"`},
			{"website", `"ftp://example.org"`},
			{"notes", `"\u0007"`},
		} {
			t.Run(wrong.field, func(t *testing.T) {
				s.Call(t, "PATCH", "/suppliers/1", fmt.Sprintf(`{"%s":%s}`, wrong.field, wrong.value)).CheckError(t, 40006, wrong.field)
			})
		}
		create(t, 3, lorenz).CheckError(t, 40903, "name")
		s.Call(t, "PATCH", "/suppliers/1", `{"state":"x"}`).CheckError(t, 40002, "state")
	})
	t.Run("list", func(t *testing.T) {
		for query, want := range map[string][]string{
			"": {"1", "2"}, "?country=NL": {"1"}, "?q=lorenz": {"1"}, "?sort=-rating": {"2", "1"}, "?sort=rating": {"1", "2"},
			"?rating_after=4": {"2"}, "?limit=1": {"1"}, "?limit=1&after=1": {"2"},
		} {
			t.Run(query, func(t *testing.T) {
				var ids []string
				for _, row := range service.Objects(t, s.Call(t, "GET", "/suppliers"+query, "").Body) {
					ids = append(ids, fmt.Sprint(row["id"]))
				}
				if !slices.Equal(ids, want) {
					t.Errorf("got %v, want %v", ids, want)
				}
			})
		}
		s.Call(t, "GET", "/suppliers?sort=name", "").CheckError(t, 40007, "sort")
		s.Call(t, "GET", "/suppliers?name=x", "").CheckError(t, 40007, "name")
	})
	t.Run("export and import", func(t *testing.T) {
		for _, kind := range []string{service.InNDJSON, service.InCSV} {
			t.Run(kind, func(t *testing.T) {
				file := s.Call(t, "GET", "/suppliers/export", "", "Accept", kind)
				file.CheckStatus(t, 200)
				s.Call(t, "POST", "/suppliers/import", file.Body, "Content-Type", kind).CheckReport(t, 0, "2: 0 new, 2 unchanged, 0 rejected, stored")
				rows := strings.Replace(file.Body, "Bruns", "Another", 1)
				report := s.Call(t, "POST", "/suppliers/import?on_conflict=replace", rows, "Content-Type", kind)
				report.CheckStatus(t, 200)
				s.Call(t, "POST", "/suppliers/import?on_conflict=replace", file.Body, "Content-Type", kind).CheckStatus(t, 200)
			})
		}
		row := fmt.Sprintf("{\"id\":7,%s}\n", strings.Replace(lorenz, `"rating":4`, `"rating":0`, 1))
		s.Call(t, "POST", "/suppliers/import", row, "Content-Type", service.InNDJSON).CheckReport(t, 40006, "1: 0 new, 0 unchanged, 1 rejected; 1 40006")
	})
	t.Run("changes", func(t *testing.T) {
		changes := s.Call(t, "GET", "/suppliers/changes?after=0", "")
		changes.CheckStatus(t, 200)
		if !strings.Contains(changes.Body, `{"id":1,"supplier":{"id":1,"name":"Baumschule Lorenz"`) {
			t.Errorf("got %v, want the suppliers", changes)
		}
	})
	t.Run("the command line", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), program, "export", "--resource", "suppliers")
		cmd.Dir, cmd.Env = t.TempDir(), service.ClientOf(s.URL)
		output, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(output), `{"id":1,"name":"Baumschule Lorenz"`) {
			t.Errorf("got %v and %s, want the suppliers", err, output)
		}
	})
	t.Run("scopes", func(t *testing.T) {
		read, plants := service.As(service.CreateToken(t, s, "suppliers:read")), service.As(service.CreateToken(t, s, "plants:write"))
		s.Get(t, "/suppliers", read...).CheckStatus(t, 200)
		s.Send(t, "DELETE", "/suppliers/2", nil, read...).CheckError(t, 40301, "suppliers:write")
		s.Send(t, "DELETE", "/suppliers/2", nil, plants...).CheckError(t, 40301, "suppliers:write")
	})
	t.Run("delete", func(t *testing.T) {
		s.Call(t, "DELETE", "/suppliers/2", "").CheckEmpty(t, 204)
		s.Call(t, "GET", "/suppliers/2", "").CheckError(t, 40401, "supplier")
	})
}

func testReferences(t *testing.T, s *service.Service) {
	s.Post(t, `{"id":1,"name":"Aloe","supplier_id":99}`).CheckError(t, 40008, "supplier_id: there is no supplier 99")
	s.Post(t, `{"id":1,"name":"Aloe","supplier_id":1}`).RequireOK(t)
	s.Call(t, "PATCH", "/plants/1", `{"supplier_id":98}`).CheckError(t, 40008, "supplier 98")
	s.Call(t, "DELETE", "/suppliers/1", "").CheckError(t, 40904, "supplier 1 still has plants")
	s.Call(t, "DELETE", "/suppliers?q=e&dry_run=true", "").CheckError(t, 40904, "supplier 1 still has plants")
	s.ImportRows(t, "?mode=partial", service.InNDJSON, "{\"id\":2,\"name\":\"Ficus\",\"supplier_id\":97}\n{\"id\":3,\"name\":\"Ficus\",\"supplier_id\":1}\n").
		CheckReport(t, 0, "2: 1 new, 0 unchanged, 1 rejected, stored; 1 40008")
}

func testWater(t *testing.T, s *service.Service, url string) {
	before := s.Call(t, "GET", "/plants/1", "")
	watered := s.Call(t, "POST", "/plants/1/water", `{"litres":0.5}`)
	watered.CheckStatus(t, 200)
	watered.CheckETag(t)
	at := regexp.MustCompile(`"watered_at":"[^"]+"`).FindString(watered.Body)
	if at == "" || watered.ETag() == before.ETag() {
		t.Fatalf("got %v after %v, want another version with watered_at", watered, before)
	}
	check := func(name string) {
		t.Helper()
		if got := s.Call(t, "GET", "/plants/1", ""); !strings.Contains(got.Body, at) {
			t.Errorf("%s: got %v, want %s", name, got, at)
		}
	}
	s.Call(t, "PUT", "/plants/1", `{"name":"Aloe","supplier_id":1}`).RequireOK(t)
	check("PUT")
	s.Call(t, "PUT", "/plants/1", s.Call(t, "GET", "/plants/1", "").Body).RequireOK(t)
	check("PUT as it was read")
	s.ImportRows(t, "?on_conflict=replace", service.InNDJSON, `{"id":1,"name":"Aloe vera"}`).CheckStatus(t, 200)
	check("an import that replaces")
	s.Post(t, `{"id":1,"name":"Aloe vera"}`).CheckError(t, 40902)

	s.Call(t, "POST", "/plants/1/water", `{"litres":1000}`).CheckError(t, 40006)
	s.Call(t, "POST", "/plants/1/water", `{}`).CheckError(t, 40004, "litres")
	s.Call(t, "POST", "/plants/99/water", `{"litres":1}`).CheckError(t, 40401)
	s.Call(t, "POST", "/plants/1/water", `{"litres":1}`, "If-Match", before.ETag()).CheckError(t, 41201)
	s.Send(t, "POST", "/plants/1/water", strings.NewReader(`{"litres":1}`), service.As(service.CreateToken(t, s, "plants:read"))...).CheckError(t, 40301, "plants:write")
	var rows int
	service.Must(t, service.OpenTable(t, url).QueryRowContext(t.Context(), "SELECT count(*) FROM waterings WHERE plant_id = 1 AND litres = 0.5").Scan(&rows))
	if rows != 1 {
		t.Errorf("got %d waterings, want 1", rows)
	}
}

func testDocument(t *testing.T, s *service.Service) {
	document := s.Get(t, "/openapi.json")
	for _, want := range []string{
		`"/suppliers/{id}": {`, `"/suppliers/import": {`, `"/plants/{id}/water": {`, `"name": "suppliers"`, `"StoredSupplier": {`, `"suppliers:write"`,
		`"operationId": "listSuppliers"`, `"operationId": "waterPlant"`, `"x-references": "suppliers"`, `"two capital letters`,
	} {
		if !strings.Contains(document.Body, want) {
			t.Errorf("got no %s in the document", want)
		}
	}
}
