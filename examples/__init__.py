"""Programs that show what Roost is for; the tests run them."""
