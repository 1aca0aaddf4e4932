import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/** Shares tables with another library: keeps two for it (of longs, of plain Avro), and joins two of its own. */
public final class Shared {
    private static byte[] encode(Schema schema, GenericRecord row) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        try {
            new GenericDatumWriter<GenericRecord>(schema).write(row, encoder);
            encoder.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return out.toByteArray();
    }

    private static GenericRecord decode(Schema schema, byte[] data) {
        try {
            return new GenericDatumReader<GenericRecord>(schema)
                .read(null, DecoderFactory.get().binaryDecoder(data, null));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static void main(String[] args) {
        String broker = args[0];
        String application = args[1]; // all topics are named after it
        String state = args[2];
        Schema schema = new Schema.Parser().parse(args[3]); // with a field "count"

        Serde<String> string = Serdes.String();
        Serde<Long> number = Serdes.Long();
        Serde<GenericRecord> avro = Serdes.serdeFrom(
            (topic, row) -> row == null ? null : encode(schema, row),
            (topic, data) -> data == null ? null : decode(schema, data));

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Long> orders = builder.stream(application + "-orders", Consumed.with(string, string))
            .groupByKey().count().toStream();
        String ordersPerUser = application + "-orders-per-user";
        orders.to(ordersPerUser, Produced.with(string, number));
        orders.mapValues(count -> (GenericRecord) new GenericRecordBuilder(schema).set("count", count).build())
            .to(application + "-orders-in-avro", Produced.with(string, avro));

        String visitCountTable = application + "-visit-count-table";
        KTable<String, Long> visitCount = builder.table(visitCountTable, Consumed.with(string, number));
        String visitRecordTable = application + "-visit-record-table";
        GlobalKTable<String, GenericRecord> visitRecord =
            builder.globalTable(visitRecordTable, Consumed.with(string, avro));
        builder.stream(application + "-questions", Consumed.with(string, string))
            .join(visitCount, (question, count) -> question + " " + count)
            .join(visitRecord, (key, question) -> key, (question, row) -> question + " " + row.get("count"))
            .to(application + "-answers", Produced.with(string, string));

        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }
}
