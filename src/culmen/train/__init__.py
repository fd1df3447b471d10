"""Training of advisors during a search (PACEvolve++). Only `engines` need torch; everything else is numpy or plain."""
