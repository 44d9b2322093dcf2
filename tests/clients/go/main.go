// Go uses the client that oapi-codegen generates from the OpenAPI document. It prints each
// step of TestClients that succeeds.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/oapi-codegen/nullable"

	"plantstore/tests/clients/go/plantstore"
)

func check(ok bool, got ...any) {
	if !ok {
		log.Panicf("got %v", got)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return value
}

func main() {
	const id = 9007199254740993 // 2^53 + 1
	ctx := context.Background()
	client := must(plantstore.NewClientWithResponses(os.Args[1], plantstore.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+os.Args[2])
			return nil
		})))

	other := must(client.CreatePlantWithResponse(ctx, plantstore.NewPlant{Id: id - 1, Name: "Aloe vera"}))
	check(other.JSON200 != nil && other.JSON200.Tag == nil, other)
	created := must(client.CreatePlantWithResponse(ctx, plantstore.NewPlant{Id: id, Name: "Ficus", Tag: new("tree")}))
	check(created.JSON200 != nil && *created.JSON200.Tag == "tree", created)
	check(*created.Headers200.Location == fmt.Sprint("/plants/", id), created.HTTPResponse)
	fmt.Println("create")

	conflict := must(client.CreatePlantWithResponse(ctx, plantstore.NewPlant{Id: id, Name: "Salix"}))
	check(conflict.JSON409 != nil && conflict.JSON409.Error == 40901, conflict)
	fmt.Println("conflict")

	invalid := must(client.CreatePlantWithResponse(ctx, plantstore.NewPlant{Id: 1, Name: ""}))
	check(invalid.JSON400 != nil && invalid.JSON400.Error == 40006, invalid)
	fmt.Println("invalid")

	plant := must(client.GetPlantWithResponse(ctx, id, nil))
	check(plant.JSON200 != nil && plant.JSON200.Id == id && plant.JSON200.Name == "Ficus", plant)
	etag := plant.Headers200.ETag
	check(*etag == *created.Headers200.ETag, plant.HTTPResponse)
	fmt.Println("get")

	unchanged := must(client.GetPlantWithResponse(ctx, id, &plantstore.GetPlantParams{IfNoneMatch: etag}))
	check(unchanged.StatusCode() == 304, unchanged)
	fmt.Println("unchanged")

	replacement := plantstore.PlantReplacement{Name: "Ficus lyrata", Tag: new("tree")}
	replaced := must(client.PutPlantWithResponse(ctx, id, &plantstore.PutPlantParams{IfMatch: etag}, replacement))
	check(replaced.JSON200 != nil && replaced.JSON200.Name == "Ficus lyrata", replaced)
	fmt.Println("replace")

	stale := must(client.PutPlantWithResponse(ctx, id, &plantstore.PutPlantParams{IfMatch: etag}, replacement))
	check(stale.JSON412 != nil && stale.JSON412.Error == 41201, stale)
	fmt.Println("stale")

	patched := must(client.PatchPlantWithResponse(ctx, id, nil, plantstore.PlantPatch{Tag: nullable.NewNullNullable[string]()}))
	check(patched.JSON200 != nil && patched.JSON200.Tag == nil && patched.JSON200.Name == "Ficus lyrata", patched)
	fmt.Println("patch")

	file := strings.NewReader("id,name,tag\n1,Monstera,\n2,Salix,tree\n3,Acer,tree\n")
	imported := must(client.ImportPlantsWithBodyWithResponse(ctx, nil, "text/csv", file))
	check(imported.JSON200 != nil && imported.JSON200.Created == 3, imported)
	fmt.Println("import")

	var ids []int64
	for params, more := (plantstore.ListPlantsParams{Limit: new(2)}), true; more; {
		page := must(client.ListPlantsWithResponse(ctx, &params))
		check(page.JSON200 != nil, page)
		for _, p := range *page.JSON200 {
			ids = append(ids, p.Id)
		}
		if more = page.Headers200.Link != nil; more {
			params.After = &regexp.MustCompile(`after=([\w-]+)`).FindStringSubmatch(*page.Headers200.Link)[1]
		}
	}
	check(slices.Equal(ids, []int64{1, 2, 3, id - 1, id}), ids)
	fmt.Println("pages")

	exported := must(client.ExportPlantsWithResponse(ctx, nil))
	check(string(exported.Body) == fmt.Sprintf(`{"id":1,"name":"Monstera"}
{"id":2,"name":"Salix","tag":"tree"}
{"id":3,"name":"Acer","tag":"tree"}
{"id":%d,"name":"Aloe vera"}
{"id":%d,"name":"Ficus lyrata"}
`, id-1, id), string(exported.Body))
	fmt.Println("export")

	changes := must(client.ListChangesWithResponse(ctx, &plantstore.ListChangesParams{After: new("0")}))
	check(changes.JSON200 != nil && len(changes.JSON200.Changes) == 5 && changes.JSON200.Changes[4].Id == id, changes)
	fmt.Println("changes")

	issued := must(client.CreateTokenWithResponse(ctx, plantstore.NewToken{Name: "client", Scopes: []plantstore.Scope{plantstore.PlantsRead}}))
	check(issued.JSON200 != nil && strings.HasPrefix(issued.JSON200.Token, issued.JSON200.Id), issued)
	fmt.Println("issue token")

	tokens := must(client.ListTokensWithResponse(ctx, nil))
	check(tokens.JSON200 != nil && (*tokens.JSON200)[0].Name == "client", tokens)
	fmt.Println("list tokens")

	revoked := must(client.RevokeTokenWithResponse(ctx, issued.JSON200.Id))
	check(revoked.StatusCode() == 204, revoked)
	fmt.Println("revoke token")

	tags := must(client.ListTagsWithResponse(ctx, nil))
	check(tags.JSON200 != nil && (*tags.JSON200)[0] == plantstore.TagCount{Tag: "tree", Plants: 2}, tags)
	fmt.Println("list tags")

	merged := must(client.PatchPlantsWithResponse(ctx, &plantstore.PatchPlantsParams{Tag: new([]string{"tree", "palm"})}, plantstore.PlantPatch{Tag: nullable.NewNullableWithValue("shrub")}))
	check(merged.JSON200 != nil && merged.JSON200.Merged == 2, merged)
	fmt.Println("patch many")

	removed := must(client.DeletePlantsWithResponse(ctx, &plantstore.DeletePlantsParams{Tag: new([]string{"palm", "shrub"})}))
	check(removed.JSON200 != nil && removed.JSON200.Deleted == 2, removed)
	fmt.Println("delete many")

	deleted := must(client.DeletePlantWithResponse(ctx, plant.JSON200.Id, nil))
	check(deleted.StatusCode() == 204, deleted)
	gone := must(client.GetPlantWithResponse(ctx, id, nil))
	check(gone.JSON404 != nil && gone.JSON404.Error == 40401, gone)
	fmt.Println("delete")
}
