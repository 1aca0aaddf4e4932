import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;

/**
 * Answers, line by line: "fingerprint SCHEMA", "write SCHEMA TAB JSON", "blocks SCHEMA TAB JSON" (a body in blocks
 * that tell their sizes) and "read SCHEMA TAB HEX" (a single-object message, back as JSON).
 */
public final class Interop {
  private static final HexFormat HEX = HexFormat.of();

  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new java.io.PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      out.println(answer(line));
    }
  }

  private static String answer(String line) throws Exception {
    String verb = line.substring(0, line.indexOf(' '));
    String[] parts = line.substring(verb.length() + 1).split("\t", 2);
    Schema schema = new Schema.Parser().parse(parts[0]);
    switch (verb) {
      case "fingerprint":
        return String.format("%016x", SchemaNormalization.parsingFingerprint64(schema));
      case "write": {
        var message = new BinaryMessageEncoder<Object>(GenericData.get(), schema).encode(datum(schema, parts[1]));
        byte[] bytes = new byte[message.remaining()];
        message.get(bytes);
        return HEX.formatHex(bytes);
      }
      case "blocks": {
        var bytes = new java.io.ByteArrayOutputStream();
        var factory = new EncoderFactory().configureBlockSize(64);
        BinaryEncoder encoder = factory.blockingBinaryEncoder(bytes, null);
        new GenericDatumWriter<Object>(schema).write(datum(schema, parts[1]), encoder);
        encoder.flush();
        return HEX.formatHex(bytes.toByteArray());
      }
      case "read": {
        var decoder = new BinaryMessageDecoder<Object>(GenericData.get(), schema);
        return GenericData.get().toString(decoder.decode(HEX.parseHex(parts[1])));
      }
      default:
        throw new IllegalArgumentException(verb);
    }
  }

  private static Object datum(Schema schema, String json) throws Exception {
    return new GenericDatumReader<Object>(schema).read(null, DecoderFactory.get().jsonDecoder(schema, json));
  }
}
