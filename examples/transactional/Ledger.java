// A service whose rows and whose answer are committed together, behind `onlyonce gateway`.
//
//     apt-get install openjdk-17-jdk-headless libpostgresql-jdbc-java
//     DATABASE_URL=postgresql://app@127.0.0.1/shop PORT=3000 \
//       java -cp /usr/share/java/postgresql.jar Ledger.java
//
// The gateway's route says `transactional = true`, and its store is in the same database. With Spring,
// the body of `charge` is that of a method with @Transactional.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Ledger {
    // The name of the function: another one if the store's URL names a table.
    static final String COMPLETE =
            System.getenv().getOrDefault("COMPLETE", "onlyonce_complete");
    static final Pattern CENTS = Pattern.compile("\"cents\"\\s*:\\s*(\\d+)");

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "3000"));
        InetAddress local = InetAddress.getByName("127.0.0.1");
        HttpServer server = HttpServer.create(new InetSocketAddress(local, port), 0);
        server.createContext("/", Ledger::answer);
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
        System.out.println("listening on " + server.getAddress().getPort());
    }

    /** Books the charge and stores the answer to it, in one transaction. */
    static byte[] charge(String lease, long cents) throws SQLException {
        try (Connection connection = connect()) {
            connection.setAutoCommit(false);
            long id;
            try (var insert = connection.prepareStatement(
                    "INSERT INTO ledger (cents) VALUES (?) RETURNING id")) {
                insert.setLong(1, cents);
                var rows = insert.executeQuery();
                rows.next();
                id = rows.getLong(1);
            }
            String text = "{\"charge\": " + id + ", \"cents\": " + cents + "}";
            byte[] body = text.getBytes(StandardCharsets.UTF_8);
            crash("before-complete");
            if (lease != null) {
                try (var complete = connection.prepareStatement(
                        "SELECT " + COMPLETE + "(?, ?, ?::jsonb, ?)")) {
                    complete.setString(1, lease);
                    complete.setInt(2, 201);
                    complete.setString(3, "{\"content-type\": \"application/json\"}");
                    complete.setBytes(4, body);
                    complete.execute();
                }
            }
            crash("before-commit");
            connection.commit(); // without it, closing the connection rolls back
            crash("after-commit");
            return body;
        }
    }

    static void answer(HttpExchange exchange) throws IOException {
        String lease = exchange.getRequestHeaders().getFirst("Onlyonce-Lease");
        byte[] asked = exchange.getRequestBody().readAllBytes();
        Matcher cents = CENTS.matcher(new String(asked, StandardCharsets.UTF_8));
        int status = 201;
        byte[] body;
        try {
            if (!cents.find()) {
                status = 400;
                body = "cents are missing".getBytes(StandardCharsets.UTF_8);
            } else {
                body = charge(lease, Long.parseLong(cents.group(1)));
                exchange.getResponseHeaders().set("Content-Type", "application/json");
            }
        } catch (SQLException error) {
            // ONCE1: another attempt has taken over, and its answer is the one that counts.
            String state = error.getSQLState();
            exchange.getResponseHeaders().set("X-Sqlstate", state == null ? "" : state);
            status = 503;
            body = "rolled back".getBytes(StandardCharsets.UTF_8);
        }
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    /** The database in DATABASE_URL, which is written as for other languages. */
    static Connection connect() throws SQLException {
        URI url = URI.create(System.getenv("DATABASE_URL"));
        String[] who = url.getUserInfo().split(":", 2);
        String at = url.getPort() < 0 ? url.getHost() : url.getHost() + ":" + url.getPort();
        String more = url.getRawQuery() == null ? "" : "?" + url.getRawQuery();
        String address = "jdbc:postgresql://" + at + url.getRawPath() + more;
        return DriverManager.getConnection(address, who[0], who.length > 1 ? who[1] : null);
    }

    /** Dies as by SIGKILL if the tests ask for it here. */
    static void crash(String point) {
        if (point.equals(System.getenv("CRASH_AT"))) {
            Runtime.getRuntime().halt(9);
        }
    }
}
