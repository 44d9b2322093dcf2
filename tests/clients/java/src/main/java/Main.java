import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonSerializer;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.module.SimpleModule;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.regex.Pattern;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.PlantsApi;
import org.openapitools.client.api.TokensApi;
import org.openapitools.client.model.Error;
import org.openapitools.client.model.NewPlant;
import org.openapitools.client.model.NewToken;
import org.openapitools.client.model.PlantChange;
import org.openapitools.client.model.PlantPatch;
import org.openapitools.client.model.PlantReplacement;
import org.openapitools.client.model.Scope;
import org.openapitools.client.model.TagCount;
import org.openapitools.client.model.Token;

/**
 * Uses the client that OpenAPI Generator generates from the OpenAPI document. Prints each
 * step of TestClients that succeeds.
 */
public class Main {
  static final long ID = 9007199254740993L; // 2^53 + 1
  static final String CSV = "id,name,tag\n1,Monstera,\n2,Salix,tree\n3,Acer,tree\n";

  interface Call {
    void run() throws ApiException;
  }

  static void step(String name, Object got, Object want) {
    if (!Objects.equals(got, want)) {
      throw new AssertionError(name + ": got " + got + ", want " + want);
    }
    System.out.println(name);
  }

  /** Returns the status of a failed call and, if it has a body, the code in it. */
  static List<Integer> failure(Call call) throws IOException {
    try {
      call.run();
      return List.of();
    } catch (ApiException e) {
      if (e.getResponseBody() == null || e.getResponseBody().isEmpty()) {
        return List.of(e.getCode());
      }
      return List.of(e.getCode(), new ApiClient().getObjectMapper().readValue(e.getResponseBody(), Error.class).getError());
    }
  }

  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(args[0]);
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + args[1]));
    // Sends the content of a file: the client would send its path, as a string of JSON.
    client.setObjectMapper(client.getObjectMapper().registerModule(new SimpleModule().addSerializer(File.class, new JsonSerializer<File>() {
      @Override
      public void serialize(File file, JsonGenerator generator, SerializerProvider provider) throws IOException {
        generator.writeRaw(Files.readString(file.toPath()));
      }
    })));
    PlantsApi plants = new PlantsApi(client);
    TokensApi tokens = new TokensApi(client);

    plants.createPlant(new NewPlant().id(ID - 1).name("Aloe vera"));
    var created = plants.createPlantWithHttpInfo(new NewPlant().id(ID).name("Ficus").tag("tree"));
    step("create", List.of(created.getData().getName(), created.getData().getTag(), created.getHeaders().get("Location").get(0)),
        List.of("Ficus", "tree", "/plants/" + ID));

    step("conflict", failure(() -> plants.createPlant(new NewPlant().id(ID).name("Salix"))), List.of(409, 40901));

    step("invalid", failure(() -> plants.createPlant(new NewPlant().id(1L).name(""))), List.of(400, 40006));

    var plant = plants.getPlantWithHttpInfo(ID, null, null);
    step("get", List.of(plant.getData().getId(), plant.getData().getName()), List.of(ID, "Ficus"));

    String etag = plant.getHeaders().get("ETag").get(0);
    step("unchanged", failure(() -> plants.getPlant(ID, etag, null)), List.of(304));

    var replacement = new PlantReplacement().name("Ficus lyrata").tag("tree");
    step("replace", plants.putPlant(ID, replacement, etag, null).getName(), "Ficus lyrata");

    step("stale", failure(() -> plants.putPlant(ID, replacement, etag, null)), List.of(412, 41201));

    var patched = plants.patchPlant(ID, new PlantPatch().tag(null), null, null);
    step("patch", patched.getName() + " " + patched.getTag(), "Ficus lyrata null");

    File file = File.createTempFile("plants", ".csv");
    file.deleteOnExit();
    Files.writeString(file.toPath(), CSV);
    step("import", plants.importPlants(file, null, null, null, null).getCreated(), 3);

    List<Long> ids = new ArrayList<>();
    for (String after = null;;) {
      var page = plants.listPlantsWithHttpInfo(2, after, null, null, null, null, null, null, null, null);
      page.getData().forEach(p -> ids.add(p.getId()));
      var link = page.getHeaders().get("Link");
      if (link == null) {
        break;
      }
      after = Pattern.compile("after=([\\w-]+)").matcher(link.get(0)).results().map(m -> m.group(1)).findFirst().get();
    }
    step("pages", ids, List.of(1L, 2L, 3L, ID - 1, ID));

    step("export", Files.readString(plants.exportPlants(null, null, null, null, null, null, null, null).toPath()),
        CSV + (ID - 1) + ",Aloe vera,\n" + ID + ",Ficus lyrata,\n");

    step("changes", plants.listChanges("0", null, null, null, null).getChanges().stream().map(PlantChange::getId).toList(),
        List.of(1L, 2L, 3L, ID - 1, ID));

    var issued = tokens.createToken(new NewToken().name("client").addScopesItem(Scope.PLANTS_READ));
    step("issue token", issued.getToken().startsWith(issued.getId()), true);

    step("list tokens", tokens.listTokens(null, null, null).stream().map(Token::getName).toList(), List.of("client"));

    step("revoke token", tokens.revokeTokenWithHttpInfo(issued.getId()).getStatusCode(), 204);

    step("list tags", plants.listTags(null, null, null).get(0), new TagCount().tag("tree").plants(2));

    step("patch many", plants.patchPlants(new PlantPatch().tag("shrub"), List.of("tree", "palm"), null, null, null, null, null).getMerged(), 2);

    step("delete many", plants.deletePlants(List.of("palm", "shrub"), null, null, null, null, null).getDeleted(), 2);

    int deleted = plants.deletePlantWithHttpInfo(plant.getData().getId(), null, null).getStatusCode();
    step("delete", List.of(deleted, failure(() -> plants.getPlant(ID, null, null))), List.of(204, List.of(404, 40401)));
  }
}
