# Third submission (different email) - should create new record
curl -X POST http://localhost:3001/api/forms/test-form/submit \
  -H "Content-Type: application/json" \
  -d '{
    "contextId": "test-form:550e8400-e29b-41d4-a716-446655440000",
    "formData": {"name": "John Doe", "email": "john2@example.com"}
  }'
