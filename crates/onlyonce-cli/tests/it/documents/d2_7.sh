# First submission with custom key
curl -X POST http://localhost:3001/api/forms/test-form/submit \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: my-custom-key-12345" \
  -d '{
    "contextId": "test-form:550e8400-e29b-41d4-a716-446655440000",
    "formData": {"name": "Jane Doe", "email": "jane@example.com"}
  }'

# Second submission with same key - should be idempotent
curl -X POST http://localhost:3001/api/forms/test-form/submit \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: my-custom-key-12345" \
  -d '{
    "contextId": "test-form:550e8400-e29b-41d4-a716-446655440000",
    "formData": {"name": "DIFFERENT NAME", "email": "different@example.com"}
  }'
