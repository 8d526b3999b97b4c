// Client-side key management
class FormBridgeClient {
  constructor() {
    this.requestCache = new Map();
  }

  async submit(intakeId, fields) {
    const requestSignature = `${intakeId}:${JSON.stringify(fields)}`;

    // Check if we've already started this request
    let idempotencyKey = this.requestCache.get(requestSignature);

    if (!idempotencyKey) {
      // First attempt: generate new key
      idempotencyKey = `idem_${crypto.randomUUID()}`;
      this.requestCache.set(requestSignature, idempotencyKey);
    }

    // Make request with key
    const response = await fetch(`/api/intakes/${intakeId}/submit`, {
      method: 'POST',
      headers: {
        'Idempotency-Key': idempotencyKey,
        'Content-Type': 'application/json'
      },
      body: JSON.stringify({ fields })
    });

    if (response.ok) {
      // Success: remove from cache
      this.requestCache.delete(requestSignature);
    }

    return response;
  }
}
