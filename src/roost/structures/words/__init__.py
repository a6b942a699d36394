"""How each database spells a program's steps, and makes a stored routine of them."""
