import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Set;

/** A client as an application writes it around java.net.http: one key for all tries, a pause as the server asks, a bounded number of tries. */
public class Retry {
    private static final int TRIES = 3;
    private static final Set<Integer> WORTH_ANOTHER_TRY = Set.of(409, 502, 503, 504);

    public static void main(String[] arguments) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Authorization", "Bearer " + arguments[1])
                .header("Content-Type", "application/x-www-form-urlencoded")
                .header("Idempotency-Key", arguments[2])
                .POST(HttpRequest.BodyPublishers.ofString(arguments[3]))
                .build();
        HttpResponse<String> answer = patiently(HttpClient.newHttpClient(), request);
        System.out.println(answer.statusCode());
        System.out.println(answer.headers().firstValue("Idempotent-Replayed").orElse(""));
        System.out.println(answer.body());
    }

    private static HttpResponse<String> patiently(HttpClient client, HttpRequest request) throws Exception {
        HttpResponse<String> answer = null;
        IOException failure = null;
        for (int left = TRIES; left > 0; left--) {
            try {
                answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            } catch (IOException error) {
                failure = error;
                continue;
            }
            if (!WORTH_ANOTHER_TRY.contains(answer.statusCode()) || left == 1) {
                break;
            }
            double seconds = answer.headers().firstValue("Retry-After").map(Double::valueOf).orElse(0.1);
            Thread.sleep((long) (seconds * 1000));
        }
        if (answer == null) {
            throw failure;
        }
        return answer;
    }
}
