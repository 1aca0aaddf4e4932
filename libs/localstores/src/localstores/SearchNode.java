import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/** One node of Elasticsearch in this process. Arguments: its home, where it writes, and its HTTP port. */
public final class SearchNode {
    private static final String NAME = "local";

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Path data = Path.of(arguments[1]);
        for (String folder : new String[] {"config", "logs", "data"}) {
            Files.createDirectories(data.resolve(folder));
        }
        Settings settings = Settings.builder()
            .put("path.home", home)
            .put("path.data", data.resolve("data"))
            .put("path.logs", data.resolve("logs"))
            .put("node.name", NAME)
            .put("cluster.name", NAME)
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", arguments[2])
            .put("transport.port", "0")
            // A developer's disk may be nearly full, and that is not what is tested.
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        LogConfigurator.configureESLogging();
        LogConfigurator.setNodeName(NAME);
        var environment =
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), data.resolve("config"), () -> NAME);
        var modules = PluginsLoader.loadModulesBundles(environment.modulesDir(), false);
        Node node = new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), false));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        Thread.currentThread().join();
    }

    private static void close(Node node) {
        try {
            node.close();
        } catch (Exception error) {
            error.printStackTrace();
        }
    }
}
