import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/** Counts clicks with Kafka Streams, exactly once: groupByKey().count(), Avro generic records, RocksDB, one thread. */
public final class ClickCount {
    /** What stands before the Avro body: C3 01 and the schema's fingerprint. */
    private static final int HEAD = 10;

    private static final class Clicks implements Deserializer<GenericRecord> {
        private final GenericDatumReader<GenericRecord> reader;
        private BinaryDecoder decoder;

        Clicks(Schema schema) {
            reader = new GenericDatumReader<>(schema);
        }

        @Override
        public GenericRecord deserialize(String topic, byte[] data) {
            try {
                decoder = DecoderFactory.get().binaryDecoder(data, HEAD, data.length - HEAD, decoder);
                return reader.read(null, decoder);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    public static void main(String[] args) throws IOException {
        Clicks clicks = new Clicks(new Schema.Parser().parse(new File(System.getenv("BENCH_SCHEMA"))));
        Serde<GenericRecord> serde = Serdes.serdeFrom((topic, click) -> {
            throw new UnsupportedOperationException("clicks are only read");
        }, clicks);

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(System.getenv("BENCH_TOPIC"), Consumed.with(Serdes.String(), serde))
            .peek(Run::seen)
            .groupByKey(Grouped.with(Serdes.String(), serde))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));

        Run.start(builder);
    }
}
